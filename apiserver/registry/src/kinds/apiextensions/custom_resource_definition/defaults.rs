//! Defaults of CustomResourceDefinitions.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.conversion.webhook.clientConfig.service.port=443"];
