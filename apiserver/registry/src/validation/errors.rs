//! The list that problems go into.

use super::Path;
use machinery_meta::field::FieldValue;
use machinery_meta::{FieldError, FieldErrorKind};

/// Problems in the order in which they were found.
#[derive(Debug, Default)]
pub struct Errors(Vec<FieldError>);

impl Errors {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn into_list(self) -> Vec<FieldError> {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError::required(&path.render(), detail));
    }

    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.0.push(FieldError::forbidden(&path.render(), detail));
    }

    pub fn invalid(&mut self, path: &Path<'_>, value: impl FieldValue, detail: impl Into<String>) {
        self.0.push(FieldError::invalid(&path.render(), value, detail));
    }

    /// A problem of something whose value says nothing about it.
    pub fn invalid_unshown(&mut self, path: &Path<'_>, detail: &str) {
        let shown = FieldError::invalid(&path.render(), "", detail);
        self.0.push(FieldError { value: None, ..shown });
    }

    /// One problem for each sentence of a syntax rule.
    pub fn all_invalid(&mut self, path: &Path<'_>, value: &str, problems: Vec<String>) {
        for problem in problems {
            self.invalid(path, value, problem);
        }
    }

    pub fn duplicate(&mut self, path: &Path<'_>, value: impl FieldValue) {
        self.0.push(FieldError::duplicate(&path.render(), value));
    }

    pub fn not_found(&mut self, path: &Path<'_>, value: impl FieldValue) {
        self.0.push(FieldError::not_found(&path.render(), value));
    }

    pub fn not_supported(&mut self, path: &Path<'_>, value: impl FieldValue, supported: &[&str]) {
        self.0
            .push(FieldError::not_supported(&path.render(), value, supported));
    }

    pub fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        self.0.push(FieldError::too_long(&path.render(), max_bytes));
    }

    pub fn too_many_characters(&mut self, path: &Path<'_>, max: usize) {
        self.0.push(FieldError::too_many_characters(&path.render(), max));
    }

    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        self.0.push(FieldError::too_many(&path.render(), actual, max));
    }

    /// How many problems are of this kind.
    pub fn count(&self, kind: FieldErrorKind) -> usize {
        self.0.iter().filter(|error| error.kind == kind).count()
    }
}
