//! Defaults of IngressClasses.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.parameters.scope=\"Cluster\""];
