//! Fields of a ControllerRevision that controllers read.

use super::revisions::canonical;
use crate::views::created;
use jiff::Timestamp;
use machinery_client::{Index, IndexName, Object, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// A revision as plans handle it.
pub type RevisionRef = Arc<Object<RevisionView>>;

/// The projection of a ControllerRevision.
#[derive(Debug, Clone, Default)]
pub struct RevisionView {
    /// `revision`.
    pub number: i64,
    /// `data`, with its members in order.
    pub data: Box<str>,
    /// Time of creation.
    pub created: Timestamp,
}

impl RevisionView {
    /// Revisions without a controller, by namespace.
    pub const ORPHANS: IndexName = IndexName("orphans");
}

impl Projection for RevisionView {
    const INDEXES: &'static [Index<Self>] = &[
        Index::CONTROLLER,
        Index {
            name: Self::ORPHANS,
            values: |revision, each| {
                if revision.header.controller().is_none() {
                    each(revision.namespace());
                }
            },
        },
    ];

    fn project(header: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let written: Written<'_> = machinery_client::json::from_slice(json)?;
        Ok(Self {
            number: written.revision,
            data: written
                .data
                .map(|data| canonical(data.get()).into())
                .unwrap_or_default(),
            created: created(header),
        })
    }
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(default)]
    revision: i64,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}
