//! The kinds of metrics.k8s.io, which are made on request and stored nowhere.

pub mod node_metrics;
pub mod pod_metrics;
