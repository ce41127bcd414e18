//! The specs of the access reviews, with upstream's field names.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `SubjectAccessReviewSpec`; `SelfSubjectAccessReview` uses only the attributes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SubjectAccessReviewSpec {
    pub resource_attributes: Option<ResourceAttributes>,
    pub non_resource_attributes: Option<NonResourceAttributes>,
    pub user: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
    pub uid: String,
}

/// A resource request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceAttributes {
    pub namespace: String,
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    pub field_selector: Option<SelectorAttributes>,
    pub label_selector: Option<SelectorAttributes>,
}

/// A request for a path.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NonResourceAttributes {
    pub path: String,
    pub verb: String,
}

/// A selector, as text or as requirements.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SelectorAttributes {
    pub raw_selector: String,
    pub requirements: Vec<SelectorRequirement>,
}

/// `key operator values`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectorRequirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}
