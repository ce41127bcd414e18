//! One validation: the errors it found, and the steps and bytes it may take.
//!
//! Schemas and values multiply: alternatives within items within alternatives, and every error quotes its path and its
//! value. The work of a definition and an object is therefore counted.

use super::Constraints;
use crate::tree::Ref;
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldPath};

/// Values looked at, with what is spent on names and texts.
pub(super) const MAX_STEPS: usize = 1 << 26;
/// Errors quote values and paths, which may be long.
const MAX_ERROR_BYTES: usize = 4 << 20;

pub(super) struct Validation {
    pub(super) errors: Vec<FieldError>,
    /// Bytes of the errors.
    bytes: usize,
    /// Steps left.
    steps: usize,
    /// A bound was met, and the rest was not looked at.
    pub(super) over: bool,
}

impl Validation {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            errors: Vec::new(),
            bytes: 0,
            steps,
            over: false,
        }
    }

    pub(super) fn finish(mut self) -> Vec<FieldError> {
        if self.over {
            let problem =
                "validation takes more steps or memory than is allowed, no further rules were checked";
            self.errors
                .push(FieldError::forbidden(&FieldPath::root(), problem));
        }
        self.errors
    }

    /// Counts a look at a value, and the bytes that are read or copied for it; false once there were too many.
    pub(super) fn step(&mut self, bytes: usize) -> bool {
        match self.steps.checked_sub(1 + bytes / 16) {
            Some(left) => self.steps = left,
            None => self.over = true,
        }
        !self.over
    }

    pub(super) fn push(&mut self, error: FieldError) {
        let value = error.value.as_ref().map_or(0, String::len);
        let texts = error.path.as_str().len() + error.detail.len() + value;
        self.bytes += texts + size_of::<FieldError>();
        self.over |= self.bytes > MAX_ERROR_BYTES;
        // Errors of alternatives that come to nothing were written all the same.
        self.step(texts);
        if !self.over {
            self.errors.push(error);
        }
    }

    /// Errors of one schema for a value, and their bytes; neither is kept here.
    pub(super) fn problems(
        &mut self,
        value: Ref<'_>,
        schema: &Constraints,
        path: &WalkedPath<'_>,
    ) -> (Vec<FieldError>, usize) {
        let (errors, bytes) = (std::mem::take(&mut self.errors), self.bytes);
        self.constraints(value, schema, path);
        let found = (std::mem::replace(&mut self.errors, errors), self.bytes - bytes);
        self.bytes = bytes;
        found
    }

    pub(super) fn take_over(&mut self, (mut errors, bytes): (Vec<FieldError>, usize)) {
        self.errors.append(&mut errors);
        self.bytes += bytes;
    }

    /// Number of schemas that a value satisfies, and the shortest list of errors of any of them.
    pub(super) fn alternatives(
        &mut self,
        value: Ref<'_>,
        schemas: &[Constraints],
        path: &WalkedPath<'_>,
    ) -> (usize, (Vec<FieldError>, usize)) {
        let (mut valid, mut best) = (0, None);
        for schema in schemas {
            let found = self.problems(value, schema, path);
            valid += usize::from(found.0.is_empty());
            if best
                .as_ref()
                .is_none_or(|(best, _): &(Vec<FieldError>, usize)| found.0.len() < best.len())
            {
                best = Some(found);
            }
        }
        (valid, best.unwrap_or_default())
    }
}
