//! Defaults of ReplicaSets.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.replicas=1"];
