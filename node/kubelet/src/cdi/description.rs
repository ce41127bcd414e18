//! Descriptions of devices, in the form of the interface. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A file: devices of one kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Description {
    /// Vendor and class, with a slash between them.
    pub(super) kind: String,
    #[serde(default)]
    pub(super) devices: Vec<DescribedDevice>,
    /// For each of the devices.
    #[serde(default)]
    pub(super) container_edits: Edits,
}

/// A device.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DescribedDevice {
    pub(super) name: String,
    #[serde(default)]
    pub(super) container_edits: Edits,
}

/// Additions to a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Edits {
    /// Variables, with their values behind `=`.
    pub(super) env: Option<Vec<String>>,
    pub(super) device_nodes: Option<Vec<DeviceNode>>,
    pub(super) mounts: Option<Vec<Mount>>,
    #[serde(rename = "additionalGids")]
    pub(super) additional_gids: Option<Vec<u32>>,
    /// Everything else, as hooks.
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, Value>,
}

/// A device file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceNode {
    /// Path in the container.
    pub(super) path: String,
    /// Path on the machine, where it differs.
    pub(super) host_path: Option<String>,
    /// `b`, `c`, `u` or `p`.
    pub(super) r#type: Option<String>,
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) file_mode: Option<u32>,
    pub(super) permissions: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, Value>,
}

/// A mount.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) host_path: String,
    pub(super) container_path: String,
    pub(super) options: Option<Vec<String>>,
    pub(super) r#type: Option<String>,
    #[serde(flatten)]
    pub(super) others: BTreeMap<String, Value>,
}

/// A device's name: its kind and its own.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    let (kind, own) = name.split_once('=')?;
    let (vendor, class) = kind.split_once('/')?;
    let is_whole = ![vendor, class, own].iter().any(|part| part.is_empty());
    is_whole.then_some((kind, own))
}
