//! Allocations on the disk, in the form of upstream's `kubelet_internal_checkpoint`: programs of others read it. Its checksum
//! is our own.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_plugin_api::device_plugin::messages::ContainerAllocateResponse;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::allocations::{Allocation, Allocations};
use super::inventory::Inventory;

pub(super) const FILE: &str = "kubelet_internal_checkpoint";
/// No larger one is written or read.
const BYTES_MAX: u64 = 64 << 20;
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

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u32,
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

    /// Writes it into the folder of the plugins' sockets. Blocks.
    pub(super) fn store(self, folder: &Path) -> io::Result<()> {
        let checksum = checksum(&self)?;
        let text = serde_json::to_vec(&File { data: self, checksum })?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // Variables of a plugin may be secret.
        node_sys::fs::write_durably(&folder.join(FILE), &text, 0o600)
    }

    /// Reads it; `None` where there is none. Blocks.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or is no regular file: plugins write the folder, too.
    pub(super) fn load(folder: &Path) -> io::Result<Option<Self>> {
        let text = match node_sys::fs::read_regular(&folder.join(FILE), BYTES_MAX + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        if text.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file: File = serde_json::from_slice(&text)?;
        if checksum(&file.data)? != file.checksum {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "checkpoint is corrupted",
            ));
        }
        Ok(Some(file.data))
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

fn checksum(data: &Data) -> io::Result<u32> {
    let hash = Sha256::digest(serde_json::to_vec(data)?);
    Ok(hash[..4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
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
