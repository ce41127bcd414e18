//! Claims on the disk, in the form of upstream's `dra_manager_state` but for the checksum, which is our own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::claims::{ClaimInfo, PreparedDevice};

pub(super) const FILE: &str = "dra_manager_state";
/// No larger one is written or read.
const BYTES_MAX: u64 = 64 << 20;
const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Upstream's names, as Go writes them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Data {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList", default)]
    claims: Option<Vec<Entry>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(rename = "ClaimName")]
    name: String,
    #[serde(rename = "Namespace")]
    namespace: String,
    /// A set, which Go writes as an object.
    #[serde(rename = "PodUIDs", default)]
    pods: Option<BTreeMap<String, Nothing>>,
    #[serde(rename = "DriverState", default)]
    drivers: Option<BTreeMap<String, DriverEntry>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Nothing {}

#[derive(Debug, Serialize, Deserialize)]
struct DriverEntry {
    /// Null until the driver has answered.
    #[serde(rename = "Devices", default)]
    devices: Option<Vec<DeviceEntry>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DeviceEntry {
    #[serde(rename = "PoolName")]
    pool: String,
    #[serde(rename = "DeviceName")]
    device: String,
    #[serde(rename = "ShareID", default)]
    share_id: Option<String>,
    #[serde(rename = "RequestNames", default)]
    requests: Option<Vec<String>>,
    #[serde(rename = "CDIDeviceIDs", default)]
    cdi_ids: Option<Vec<String>>,
}

/// The data are a text of their own, so that the checksum is of bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: String,
    checksum: u32,
}

impl Data {
    /// Everything as it is now.
    pub(super) fn new<'c>(claims: impl Iterator<Item = &'c ClaimInfo>) -> Self {
        Self {
            kind: KIND.to_owned(),
            api_version: API_VERSION.to_owned(),
            claims: Some(claims.map(Entry::of).collect()),
        }
    }

    /// Returns the claims.
    pub(super) fn claims(self) -> impl Iterator<Item = ClaimInfo> {
        self.claims.into_iter().flatten().map(Entry::claim)
    }

    /// Writes it into a folder. Blocks.
    pub(super) fn store(self, folder: &Path) -> io::Result<()> {
        let data = serde_json::to_string(&self)?;
        let checksum = checksum(&data);
        let text = serde_json::to_vec(&File { data, checksum })?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        node_sys::fs::write_durably(&folder.join(FILE), &text, 0o600)
    }

    /// Reads it; `None` where there is none. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(super) fn load(folder: &Path) -> io::Result<Option<Self>> {
        let text = match node_sys::fs::read_regular(&folder.join(FILE), BYTES_MAX + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        if text.len() as u64 > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let file: File = serde_json::from_slice(&text)?;
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        if checksum(&file.data) != file.checksum {
            return Err(invalid("checkpoint is corrupted"));
        }
        let data: Self = serde_json::from_str(&file.data)?;
        match (data.kind.as_str(), data.api_version.as_str()) {
            (KIND, API_VERSION) => Ok(Some(data)),
            _ => Err(invalid("checkpoint is of another kind or version")),
        }
    }
}

impl Entry {
    fn of(claim: &ClaimInfo) -> Self {
        let drivers = claim.drivers.iter().map(|(driver, devices)| {
            let devices = devices.as_ref();
            let devices = devices.map(|devices| devices.iter().map(DeviceEntry::of).collect());
            (driver.clone(), DriverEntry { devices })
        });
        Self {
            uid: claim.uid.clone(),
            name: claim.key.1.clone(),
            namespace: claim.key.0.clone(),
            pods: Some(claim.pods.iter().map(|pod| (pod.clone(), Nothing {})).collect()),
            drivers: Some(drivers.collect()),
        }
    }

    fn claim(self) -> ClaimInfo {
        let drivers = self.drivers.into_iter().flatten();
        let drivers = drivers.map(|(driver, state)| {
            let devices = state.devices;
            let devices = devices.map(|devices| devices.into_iter().map(DeviceEntry::device).collect());
            (driver, devices)
        });
        ClaimInfo {
            key: (self.namespace, self.name),
            uid: self.uid,
            pods: self
                .pods
                .map(BTreeMap::into_keys)
                .into_iter()
                .flatten()
                .collect::<BTreeSet<_>>(),
            drivers: drivers.collect(),
            ..ClaimInfo::default()
        }
    }
}

impl DeviceEntry {
    fn of(device: &PreparedDevice) -> Self {
        Self {
            pool: device.pool.clone(),
            device: device.device.clone(),
            share_id: device.share_id.clone(),
            requests: Some(device.requests.clone()),
            cdi_ids: Some(device.cdi_ids.clone()),
        }
    }

    fn device(self) -> PreparedDevice {
        PreparedDevice {
            pool: self.pool,
            device: self.device,
            share_id: self.share_id,
            requests: self.requests.unwrap_or_default(),
            cdi_ids: self.cdi_ids.unwrap_or_default(),
        }
    }
}

fn checksum(data: &str) -> u32 {
    let hash = Sha256::digest(data.as_bytes());
    hash[..4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}
