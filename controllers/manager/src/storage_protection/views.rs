//! Fields of volumes and claims that protection reads.

use machinery_client::{Index, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// A volume or a claim: whether it is bound, and the attribute classes it speaks of.
#[derive(Debug, Default)]
pub(crate) struct StorageView {
    pub(super) bound: bool,
    pub(super) attributes_classes: Box<[Box<str>]>,
}

impl Projection for StorageView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let object: Object = machinery_client::json::from_slice(json)?;
        let target = object.status.modify_volume_status;
        let classes = [
            object.spec.volume_attributes_class_name,
            object.status.current_volume_attributes_class_name,
            target.and_then(|target| target.target_volume_attributes_class_name),
        ];
        Ok(Self {
            bound: object.status.phase == super::BOUND,
            attributes_classes: classes.into_iter().flatten().collect(),
        })
    }
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    volume_attributes_class_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    current_volume_attributes_class_name: Option<Box<str>>,
    modify_volume_status: Option<Modification>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Modification {
    target_volume_attributes_class_name: Option<Box<str>>,
}
