//! Defaults of EndpointSlices.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["ports[].name=\"\"", "ports[].protocol=\"TCP\""];
