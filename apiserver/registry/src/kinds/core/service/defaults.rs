//! Defaults of Services.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.sessionAffinity=\"None\"",
    "spec.type=\"ClusterIP\"",
    "spec.ports[].protocol=\"TCP\"",
];
