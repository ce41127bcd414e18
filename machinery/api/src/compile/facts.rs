//! The form of the files in `facts/`; `facts/README.md` says what each member means.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Package {
    pub(super) go_package: String,
    pub(super) types: BTreeMap<String, Type>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct Type {
    pub(super) kinds: Vec<String>,
    pub(super) marker: String,
    pub(super) is: String,
    pub(super) map_type: String,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Field {
    pub(super) name: String,
    /// Go's name, where it is not the JSON name but for case.
    pub(super) go: String,
    pub(super) r#type: String,
    /// Go's name of a named scalar (`v1.PullPolicy`), where the facts have it.
    pub(super) go_type: String,
    pub(super) inline: bool,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    pub(super) required: bool,
    pub(super) number: u16,
    pub(super) wire: String,
    pub(super) patch_strategy: String,
    pub(super) patch_merge_key: String,
    pub(super) list_type: String,
    pub(super) map_keys: Vec<String>,
    pub(super) map_type: String,
    pub(super) default: Option<serde_json::Value>,
    pub(super) r#enum: Vec<String>,
    /// Values of the items of a list or a map.
    pub(super) item_enum: Vec<String>,
    pub(super) format: String,
    pub(super) feature_gates: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Resources {
    pub(super) groups: Vec<Group>,
    pub(super) resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) versions: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    pub(super) singular: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<String>,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) etcd_prefix: Option<String>,
    pub(super) subresources: Vec<Subresource>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct Subresource {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) verbs: Vec<String>,
}
