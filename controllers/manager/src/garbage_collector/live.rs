//! The live state of an object, by its metadata.

use super::finalizers::propagation_of;
use bytes::Bytes;
use machinery_client::ClientError;
use machinery_client::object::parse_header;
use machinery_meta::{ObjectHeader, Revision};
use serde::Deserialize;
use serde_json::Value;

/// The live state of an object.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) header: ObjectHeader,
    pub(super) revision: Revision,
    body: Bytes,
}

#[derive(Deserialize)]
struct Body {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    owner_references: Option<Vec<Value>>,
}

impl Live {
    /// Reads an answer of the API.
    pub(super) fn parse(body: Bytes) -> Result<Self, ClientError> {
        let (header, revision) = parse_header(&body).map_err(unreadable)?;
        Ok(Self {
            header,
            revision,
            body,
        })
    }

    /// Returns the owner references as they are written, to be written back: the header knows no absent fields.
    pub(super) fn references(&self) -> Result<Vec<Value>, ClientError> {
        let body: Body = serde_json::from_slice(&self.body).map_err(unreadable)?;
        Ok(body.metadata.owner_references.unwrap_or_default())
    }

    /// Reports whether this is the object that was decided on, as far as decisions rest on it.
    pub(super) fn is_still(&self, decided: &ObjectHeader) -> bool {
        self.header.uid == decided.uid
            && self.header.owners == decided.owners
            && self.header.is_deleting() == decided.is_deleting()
            && propagation_of(&self.header) == propagation_of(decided)
    }
}

fn unreadable(source: serde_json::Error) -> ClientError {
    ClientError::Decode {
        what: "an object".to_owned(),
        source,
    }
}
