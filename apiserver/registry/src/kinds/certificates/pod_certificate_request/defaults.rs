//! Defaults of PodCertificateRequests.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.maxExpirationSeconds=86400"];
