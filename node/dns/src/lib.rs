//! Cluster names over UDP and TCP.
