//! Defaults of PersistentVolumeClaims.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.volumeMode=\"Filesystem\"", "status.phase=\"Pending\""];
