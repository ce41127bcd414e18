//! Group versions that other servers answer, as discovery and OpenAPI show them.

use machinery_api::openapi::v2::OtherDocument;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// All of them, and the places of every group version among the others.
#[derive(Debug, Clone, Default)]
pub struct ExtensionGroups {
    /// By group and version, the server's own ones included.
    pub priorities: HashMap<(String, String), Priority>,
    pub versions: Vec<ExtensionVersion>,
}

/// The place of a group version: higher ones come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    /// Of the group among groups.
    pub group: i64,
    /// Of the version in its group.
    pub version: i64,
}

/// A version of a group that another server answers.
#[derive(Debug, Clone)]
pub struct ExtensionVersion {
    pub group: String,
    pub version: String,
    /// From that server's last discovery.
    pub resources: Arc<[ExtensionResource]>,
    /// Reports whether that server answered the last request.
    pub is_current: bool,
    /// The address of its OpenAPI v3 document, where it has one.
    pub openapi_v3: Option<Arc<str>>,
    /// Its part of the OpenAPI v2 document.
    pub openapi_v2: Option<OpenApiV2>,
}

/// A part of the OpenAPI v2 document.
#[derive(Debug, Clone)]
pub struct OpenApiV2 {
    pub document: Arc<OtherDocument>,
    /// Of the document that it was read from.
    pub digest: Arc<[u8]>,
}

/// A resource of such a version, as aggregated discovery has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionResource {
    pub resource: String,
    #[serde(serialize_with = "kind_or_empty")]
    pub response_kind: Option<ExtensionKind>,
    pub scope: String,
    pub singular_resource: String,
    #[serde(deserialize_with = "null_as_default")]
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub categories: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub subresources: Vec<ExtensionSubresource>,
}

/// A kind that is answered; without group and version it is of the group version itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtensionKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// A subresource of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionSubresource {
    pub subresource: String,
    #[serde(serialize_with = "kind_or_empty")]
    pub response_kind: Option<ExtensionKind>,
    #[serde(deserialize_with = "null_as_default")]
    pub verbs: Vec<String>,
}

/// Reads `null` as nothing: Go writes it for a list that was never made.
///
/// # Errors
/// The value is another one than `null` and does not fit.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Old clients fail where there is none, so upstream shows an empty one.
fn kind_or_empty<S: serde::Serializer>(
    kind: &Option<ExtensionKind>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match kind {
        Some(kind) => kind.serialize(serializer),
        None => ExtensionKind::default().serialize(serializer),
    }
}
