//! The list that problems go into.

use super::Path;
use machinery_meta::field::FieldValue;
use machinery_meta::{FieldError, FieldErrorKind};
use std::collections::HashSet;

/// Problems in the order in which they were found.
#[derive(Debug, Default)]
pub struct Errors {
    list: Vec<FieldError>,
    bytes: usize,
}

/// Bytes of all problems together; some list every other value of the object.
const MAX_BYTES: usize = 8 << 20;

impl Errors {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn into_list(self) -> Vec<FieldError> {
        self.list
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn push(&mut self, error: FieldError) {
        self.note(|| error);
    }

    /// A problem that is worded only where there is room for it: it may show a list that has thousands of them.
    pub fn note(&mut self, worded: impl FnOnce() -> FieldError) {
        if self.is_full() {
            return;
        }
        let error = worded();
        let shown = error.value.as_ref().map_or(0, String::len);
        self.bytes += error.path.as_str().len() + error.detail.len() + shown + size_of::<FieldError>();
        self.list.push(error);
    }

    /// Adds further problems.
    pub fn extend(&mut self, others: impl IntoIterator<Item = FieldError>) {
        others.into_iter().for_each(|error| self.push(error));
    }

    /// Reports whether no further problem is recorded: the object is refused anyway.
    pub fn is_full(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.note(|| FieldError::required(&path.to_path(), detail));
    }

    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.note(|| FieldError::forbidden(&path.to_path(), detail));
    }

    pub fn invalid(&mut self, path: &Path<'_>, value: impl FieldValue, detail: impl Into<String>) {
        self.note(|| FieldError::invalid(&path.to_path(), value, detail));
    }

    /// A problem of something whose value says nothing about it.
    pub fn invalid_unshown(&mut self, path: &Path<'_>, detail: &str) {
        self.note(|| FieldError {
            value: None,
            ..FieldError::invalid(&path.to_path(), "", detail)
        });
    }

    /// One problem for each sentence of a syntax rule.
    pub fn all_invalid(&mut self, path: &Path<'_>, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, problem);
        }
    }

    pub fn duplicate(&mut self, path: &Path<'_>, value: impl FieldValue) {
        self.note(|| FieldError::duplicate(&path.to_path(), value));
    }

    pub fn not_found(&mut self, path: &Path<'_>, value: impl FieldValue) {
        self.note(|| FieldError::not_found(&path.to_path(), value));
    }

    pub fn not_supported(&mut self, path: &Path<'_>, value: impl FieldValue, supported: &[&str]) {
        self.note(|| FieldError::not_supported(&path.to_path(), value, supported));
    }

    pub fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        self.note(|| FieldError::too_long(&path.to_path(), max_bytes));
    }

    pub fn too_many_characters(&mut self, path: &Path<'_>, max: usize) {
        self.note(|| FieldError::too_many_characters(&path.to_path(), max));
    }

    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        self.note(|| FieldError::too_many(&path.to_path(), actual, max));
    }

    /// Number of problems of this kind.
    pub fn count(&self, kind: FieldErrorKind) -> usize {
        self.list.iter().filter(|error| error.kind == kind).count()
    }
}

impl IntoIterator for Errors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// The problems of one list, and those of another that are not reported yet.
pub fn each_once(mut all: Vec<FieldError>, more: Vec<FieldError>) -> Vec<FieldError> {
    let mut known: HashSet<FieldError> = all.iter().cloned().collect();
    all.extend(more.into_iter().filter(|problem| known.insert(problem.clone())));
    all
}
