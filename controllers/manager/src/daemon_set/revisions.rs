//! The revision of the present template among those of the set.

use super::plan::SetRef;
use crate::history::RevisionRef;
use crate::history::revisions::{POD_HASH, equal, template_data};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The data of the present template's revision.
pub(super) fn data(set: &SetRef) -> Result<String, serde_json::Error> {
    let json = set.json();
    let written: Written<'_> = serde_json::from_slice(&json)?;
    template_data(written.spec.template.get())
}

/// The revisions of a set, sorted out.
#[derive(Debug)]
pub(super) struct Sorted {
    /// The revision of the present template: the highest, where there are several.
    pub(super) current: Option<RevisionRef>,
    /// Others of the present template, which go.
    pub(super) duplicates: Vec<RevisionRef>,
    /// Revisions of other templates.
    pub(super) old: Vec<RevisionRef>,
}

/// Sorts revisions, given in their order.
pub(super) fn sort_out(all: &[RevisionRef], data: &str) -> Sorted {
    let mut duplicates: Vec<_> = equal(all, data).cloned().collect();
    let current = duplicates.pop();
    let old = all.iter().filter(|own| *own.data != *data).cloned();
    Sorted {
        current,
        duplicates,
        old: old.collect(),
    }
}

/// The hash that a revision gives its pods, empty where it has no label yet.
pub(super) fn hash_of(revision: &RevisionRef) -> &str {
    revision.header.label(POD_HASH).unwrap_or("")
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    spec: WrittenSpec<'a>,
}

#[derive(Deserialize)]
struct WrittenSpec<'a> {
    #[serde(borrow)]
    template: &'a RawValue,
}
