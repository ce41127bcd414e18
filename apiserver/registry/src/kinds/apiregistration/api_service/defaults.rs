//! Defaults of APIServices.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.service.port=443"];
