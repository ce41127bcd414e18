//! Allocations on the disk, in the form of upstream's `kubelet_internal_checkpoint`: programs of others read it. Its checksum
//! is our own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_plugin_api::device_plugin::messages::ContainerAllocateResponse;
use serde::{Deserialize, Serialize};

use super::allocations::{Allocation, Allocations};
use super::inventory::Inventory;
use crate::saving::file::{self, FileData};

pub(super) const FILE: &str = "kubelet_internal_checkpoint";
/// Stands for the place of a device that has none, as upstream's `nodeWithoutTopology`.
const NO_NODE: i64 = -1;

/// Everything that outlives the agent.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Data {
    #[serde(default)]
    pod_device_entries: Vec<Entry>,
    /// Healthy devices by resource.
    #[serde(default)]
    registered_devices: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container_name: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    /// By NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<i64, Vec<String>>,
    #[serde(rename = "AllocResp")]
    alloc_resp: String,
}

impl FileData for Data {
    fn summed(&self) -> io::Result<Cow<'_, [u8]>> {
        Ok(Cow::Owned(serde_json::to_vec(self)?))
    }
}

impl Data {
    /// Everything as it is now.
    pub(super) fn new(inventory: &Inventory, allocations: &Allocations) -> Self {
        let entries = allocations
            .iter()
            .map(|(uid, container, resource, allocation)| Entry {
                pod_uid: uid.to_owned(),
                container_name: container.to_owned(),
                resource_name: resource.to_owned(),
                device_ids: by_node(&allocation.devices),
                alloc_resp: STANDARD.encode(prost::Message::encode_to_vec(&*allocation.response)),
            });
        Self {
            pod_device_entries: entries.collect(),
            registered_devices: inventory.registered(),
        }
    }

    /// Resources whose plugin was there.
    pub(super) fn resources(&self) -> impl Iterator<Item = String> {
        self.registered_devices.keys().cloned()
    }

    /// Returns the allocations. One that cannot be read is left out, and logged.
    pub(super) fn allocations(self) -> Allocations {
        let mut allocations = Allocations::default();
        for entry in self.pod_device_entries {
            match entry.response() {
                Ok(response) => {
                    let devices = by_device(entry.device_ids);
                    let allocation = Allocation {
                        devices,
                        response: Arc::new(response),
                        is_seen: false,
                    };
                    allocations.insert(
                        &entry.pod_uid,
                        &entry.container_name,
                        &entry.resource_name,
                        allocation,
                    );
                }
                Err(error) => tracing::error!(
                    uid = entry.pod_uid,
                    container = entry.container_name,
                    resource = entry.resource_name,
                    error,
                    "allocated devices of a container not read"
                ),
            }
        }
        allocations
    }

    /// Writes it into the folder of the plugins' sockets: see [`file::store`]. Variables of a plugin may be secret.
    pub(super) fn store(self, folder: &Path) -> io::Result<()> {
        file::store(&folder.join(FILE), self)
    }

    /// Reads it: see [`file::load`].
    pub(super) fn load(folder: &Path) -> io::Result<Option<Self>> {
        file::load(&folder.join(FILE))
    }
}

impl Entry {
    fn response(&self) -> Result<ContainerAllocateResponse, String> {
        let bytes = STANDARD
            .decode(&self.alloc_resp)
            .map_err(|error| error.to_string())?;
        prost::Message::decode(bytes.as_slice()).map_err(|error: prost::DecodeError| error.to_string())
    }
}

fn by_node(devices: &BTreeMap<String, Vec<i64>>) -> BTreeMap<i64, Vec<String>> {
    let mut nodes: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (device, places) in devices {
        let places = if places.is_empty() { &[NO_NODE][..] } else { places };
        for node in places {
            nodes.entry(*node).or_default().push(device.clone());
        }
    }
    nodes
}

fn by_device(nodes: BTreeMap<i64, Vec<String>>) -> BTreeMap<String, Vec<i64>> {
    let mut devices: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (node, ids) in nodes {
        for id in ids {
            let places = devices.entry(id).or_default();
            places.extend(Some(node).filter(|node| *node != NO_NODE));
        }
    }
    devices
}
