//! Paths of files within volumes and containers.

use crate::shared::validation::{Errors, Path};

/// A relative path that never goes up.
pub(super) fn descending_path(errors: &mut Errors, path: &Path<'_>, target: &str) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(errors, path, target);
}

/// A path without `..`.
pub(super) fn no_backsteps(errors: &mut Errors, path: &Path<'_>, target: &str) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(path, target, "must not contain '..'");
    }
}

/// A relative path that stays below and does not look like our own bookkeeping (`..data`).
pub(super) fn local_file(errors: &mut Errors, path: &Path<'_>, target: &str) {
    descending_path(errors, path, target);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}
