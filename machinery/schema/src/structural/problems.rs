//! Problems of a definition's schema, bounded in bytes: each quotes its path, whose names are as long as the definition has them.

use machinery_meta::field::FieldValue;
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldPath};

/// Bytes of all problems that one check of a schema finds.
const MAX_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Default)]
pub(super) struct Problems {
    found: Vec<FieldError>,
    bytes: usize,
}

impl Problems {
    /// Reports whether there is no room for more: the rest of the schema need not be looked at.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// Adds a problem as long as there is room for it.
    pub(super) fn push(&mut self, problem: FieldError) {
        if self.is_full() {
            return;
        }
        let value = problem.value.as_ref().map_or(0, String::len);
        self.bytes += problem.path.as_str().len() + value + problem.detail.len() + size_of::<FieldError>();
        self.found.push(problem);
    }

    pub(super) fn forbidden(&mut self, path: &WalkedPath<'_>, detail: impl Into<String>) {
        self.push_at(path, |path| FieldError::forbidden(path, detail));
    }

    pub(super) fn required(&mut self, path: &WalkedPath<'_>, detail: impl Into<String>) {
        self.push_at(path, |path| FieldError::required(path, detail));
    }

    pub(super) fn invalid(
        &mut self,
        path: &WalkedPath<'_>,
        value: impl FieldValue,
        detail: impl Into<String>,
    ) {
        self.push_at(path, |path| FieldError::invalid(path, value, detail));
    }

    pub(super) fn not_supported(
        &mut self,
        path: &WalkedPath<'_>,
        value: impl FieldValue,
        supported: &[&str],
    ) {
        self.push_at(path, |path| FieldError::not_supported(path, value, supported));
    }

    fn push_at(&mut self, path: &WalkedPath<'_>, problem: impl FnOnce(&FieldPath) -> FieldError) {
        if !self.is_full() {
            self.push(problem(&path.to_path()));
        }
    }

    /// Returns them, the last of which says that there were more.
    pub(super) fn finish(mut self, sort: impl FnOnce(&mut Vec<FieldError>)) -> Vec<FieldError> {
        sort(&mut self.found);
        if self.bytes > MAX_BYTES {
            let detail = "too many problems, the rest of the schema was not checked";
            self.found.push(FieldError::forbidden(&FieldPath::root(), detail));
        }
        self.found
    }
}

/// The path at which a walk through a schema begins.
pub(super) fn start(path: &FieldPath) -> WalkedPath<'_> {
    match path.is_root() {
        true => WalkedPath::ROOT,
        false => WalkedPath::of(path.as_str()),
    }
}
