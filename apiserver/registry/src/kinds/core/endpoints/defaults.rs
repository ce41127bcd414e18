//! Defaults of Endpoints.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["subsets[].ports[].protocol=\"TCP\""];
