//! The kind of autoscaling.

pub mod horizontal_pod_autoscaler;
