//! The kind of node.k8s.io.

pub mod runtime_class;
