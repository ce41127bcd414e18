//! Rules that several components share: requests, QoS, readiness, affinity, taints.
