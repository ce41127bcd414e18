//! Claims on the disk, in the form of upstream's `dra_manager_state` but for the checksum, which is our own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::claims::{ClaimInfo, PreparedDevice};
use crate::saving::file;

pub(super) const FILE: &str = "dra_manager_state";
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

    /// Writes it into a folder, as a text of its own in the file: see [`file::store`].
    pub(super) fn store(self, folder: &Path) -> io::Result<()> {
        file::store(&folder.join(FILE), serde_json::to_string(&self)?)
    }

    /// Reads it: see [`file::load`].
    ///
    /// # Errors
    /// As there, or it is of another kind or version.
    pub(super) fn load(folder: &Path) -> io::Result<Option<Self>> {
        let Some(text) = file::load::<String>(&folder.join(FILE))? else {
            return Ok(None);
        };
        let data: Self = serde_json::from_str(&text)?;
        match (data.kind.as_str(), data.api_version.as_str()) {
            (KIND, API_VERSION) => Ok(Some(data)),
            _ => Err(file::invalid("checkpoint is of another kind or version")),
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
