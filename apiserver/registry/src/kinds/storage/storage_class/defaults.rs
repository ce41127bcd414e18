//! Defaults of StorageClasses.

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["reclaimPolicy=\"Delete\"", "volumeBindingMode=\"Immediate\""];
