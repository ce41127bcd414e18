//! Objects of a request while webhooks or policies change them, in the version that each of them wants.

use super::{Objects, Selection};
use crate::AdmissionError;
use crate::host::Equivalent;
use machinery_schema::patch::{PatchError, PatchType, patched_document};
use machinery_schema::{DecodeError, Decoded, Strictness, Tree, decode_json};
use std::borrow::Cow;

/// The objects of a request in the version that was wanted last.
pub(crate) struct Candidate<'a> {
    selection: &'a Selection<'a>,
    version: Equivalent,
    new: Option<Cow<'a, Tree>>,
    old: Option<Cow<'a, Tree>>,
    /// There was a patch, whatever it has changed.
    pub(crate) is_patched: bool,
}

impl<'a> Candidate<'a> {
    pub(crate) fn new(selection: &'a Selection<'a>, new: Option<&'a Tree>, old: Option<&'a Tree>) -> Self {
        Self {
            selection,
            version: selection.own_version(),
            new: new.map(Cow::Borrowed),
            old: old.map(Cow::Borrowed),
            is_patched: false,
        }
    }

    pub(crate) fn objects(&self) -> Objects<'_> {
        Objects {
            new: self.new.as_deref(),
            old: self.old.as_deref(),
        }
    }

    /// Brings the objects into a version.
    pub(crate) async fn convert(&mut self, to: &Equivalent) -> Result<(), AdmissionError> {
        if self.version.kind == to.kind {
            return Ok(());
        }
        let Objects { new, old } = self.objects();
        let new = self.selection.converted(new, &self.version, to).await?;
        let old = self.selection.converted(old, &self.version, to).await?;
        (self.new, self.old) = (new.map(Cow::Owned), old.map(Cow::Owned));
        self.version = to.clone();
        Ok(())
    }

    /// Takes the patched object.
    pub(crate) fn patch(&mut self, object: Tree) {
        self.new = Some(Cow::Owned(object));
        self.is_patched = true;
    }

    /// The object in the request's own version, with a record of owners that can be used.
    pub(crate) async fn finish(mut self, before: &Tree) -> Result<Tree, AdmissionError> {
        self.old = None;
        self.convert(&self.selection.own_version()).await?;
        let object = self.new.map(Cow::into_owned);
        let object = object.ok_or_else(|| AdmissionError::Internal("there is no object".to_owned()))?;
        Ok(keep_owners(self.selection, object, before))
    }
}

/// A record of field owners that cannot be used is put back.
fn keep_owners(selection: &Selection<'_>, mut changed: Tree, before: &Tree) -> Tree {
    let Some(problem) = selection.host.field_owners_problem(&changed) else {
        return changed;
    };
    selection.host.warn(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {problem}"
    ));
    changed.remove(&["metadata", "managedFields"]);
    if let Some(owners) = before.at(&["metadata", "managedFields"]) {
        changed.set(&["metadata".into(), "managedFields".into()], owners);
    }
    changed
}

/// The reason for which a patch does not apply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PatchFailure {
    #[error("{0}")]
    Patch(#[from] PatchError),
    /// The patched document is no object of the kind.
    #[error("{0}")]
    Object(#[from] DecodeError),
    #[error("strict decoding error: {0}")]
    Unknown(String),
}

/// Applies a JSON patch as upstream does: to the object's JSON, which is then read as its kind again. Members unknown to the kind are dropped.
pub(crate) fn patched(object: &Tree, patch: &[u8]) -> Result<Tree, PatchFailure> {
    Ok(read_patched(object, patch, Strictness::Ignore)?.tree)
}

/// The same where fields that the kind does not know are a failure. Of custom kinds they are not, since Go reads their objects
/// without a type.
pub(crate) fn strictly_patched(object: &Tree, patch: &[u8], is_custom: bool) -> Result<Tree, PatchFailure> {
    if is_custom {
        return patched(object, patch);
    }
    let read = read_patched(object, patch, Strictness::Report)?;
    match read.strict_errors.as_slice() {
        [] => Ok(read.tree),
        unknown => Err(PatchFailure::Unknown(unknown.join(", "))),
    }
}

fn read_patched(object: &Tree, patch: &[u8], strictness: Strictness) -> Result<Decoded, PatchFailure> {
    let text = patched_document(object, PatchType::Json, patch)?;
    Ok(decode_json(
        object.schema(),
        object.ty(),
        text.as_bytes(),
        strictness,
    )?)
}
