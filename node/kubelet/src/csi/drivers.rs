//! Drivers that are registered.

use std::collections::BTreeMap;
use std::path::PathBuf;

use node_plugin_api::csi::client::NodeClient;
use node_plugin_api::csi::messages::{NodeGetCapabilitiesResponse, NodeRpcType};
use parking_lot::Mutex;

use super::places::Root;

/// Version of a driver's API: its numbers.
pub(super) type Version = Vec<u64>;

/// Abilities of a driver that the agent requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// It shows a volume once for the node before it shows it to pods.
    pub(super) stages: bool,
    /// It knows what volumes hold.
    pub(super) has_stats: bool,
    /// It makes file systems larger.
    pub(super) expands: bool,
    /// It knows volumes of one pod from those of one node.
    pub(super) single_node_multi_writer: bool,
    /// It gives files to a group itself.
    pub(super) mount_group: bool,
}

impl Abilities {
    /// Abilities in a driver's answer.
    pub(super) fn of(answer: &NodeGetCapabilitiesResponse) -> Self {
        let has = |wanted: NodeRpcType| {
            let mut all = answer.capabilities.iter().filter_map(|ability| ability.rpc);
            all.any(|rpc| rpc.r#type() == wanted)
        };
        Self {
            stages: has(NodeRpcType::StageUnstageVolume),
            has_stats: has(NodeRpcType::GetVolumeStats),
            expands: has(NodeRpcType::ExpandVolume),
            single_node_multi_writer: has(NodeRpcType::SingleNodeMultiWriter),
            mount_group: has(NodeRpcType::VolumeMountGroup),
        }
    }
}

/// A driver. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Driver {
    pub(super) client: NodeClient,
    pub(super) endpoint: PathBuf,
    pub(super) version: Version,
    pub(super) abilities: Abilities,
    /// The agent's folders, as the driver sees them.
    pub(super) root: Root,
}

/// Drivers by name.
#[derive(Debug, Default)]
pub(super) struct Drivers(Mutex<BTreeMap<String, Driver>>);

impl Drivers {
    /// Returns a driver, or upstream's words that there is none.
    pub(super) fn get(&self, name: &str) -> Result<Driver, String> {
        let found = self.0.lock().get(name).cloned();
        found.ok_or_else(|| format!("driver name {name} not found in the list of registered CSI drivers"))
    }

    /// Reports whether a driver is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.lock().contains_key(name)
    }

    /// A driver is there.
    pub(super) fn set(&self, name: &str, driver: Driver) {
        self.0.lock().insert(name.to_owned(), driver);
    }

    /// The driver at a socket has gone; false where it was not there.
    pub(super) fn remove(&self, name: &str, endpoint: &PathBuf) -> bool {
        let mut drivers = self.0.lock();
        let is_own = drivers
            .get(name)
            .is_some_and(|driver| driver.endpoint == *endpoint);
        is_own && drivers.remove(name).is_some()
    }

    /// Checks the versions of a driver that registers, and returns the highest that can be used. Words are upstream's.
    pub(super) fn check_versions(&self, name: &str, versions: &[String]) -> Result<Version, String> {
        let refused = |why: &str| {
            Err(format!(
                "kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed. {why}"
            ))
        };
        if versions.is_empty() {
            return refused("Plugin returned an empty list for supported versions");
        }
        let usable = versions.iter().filter_map(|version| parse(version));
        let Some(highest) = usable.filter(|version| version[0] == 1).max() else {
            let why = format!(
                "None of the versions specified {versions:?} are supported. err=could not find a highest supported version \
                 from versions ({versions:?}) reported by this driver"
            );
            return refused(&why);
        };
        match self.0.lock().get(name) {
            Some(known) if known.version >= highest => {
                let numbers: Vec<String> = known.version.iter().map(u64::to_string).collect();
                let why = format!(
                    "Another driver with the same name is already registered with a higher supported version: {:?}",
                    numbers.join(".")
                );
                refused(&why)
            }
            _ => Ok(highest),
        }
    }
}

/// Reads `1.2.3`, also after a `v`, and whatever follows.
fn parse(version: &str) -> Option<Version> {
    let text = version.trim().trim_start_matches('v');
    let numbers = text
        .split(|character: char| !character.is_ascii_digit() && character != '.')
        .next()?;
    let numbers: Option<Version> = numbers.split('.').map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(versions: &[&str]) -> Result<Version, String> {
        let versions: Vec<String> = versions.iter().map(|own| (*own).to_owned()).collect();
        Drivers::default().check_versions("d", &versions)
    }

    #[test]
    fn driver_is_used_by_the_highest_version_of_the_first_api() {
        assert_eq!(checked(&["1.0.0"]), Ok(vec![1, 0, 0]));
        assert_eq!(
            checked(&["v1.2", "0.3.0", "2.0.0", "1.10.0-rc.1"]),
            Ok(vec![1, 10, 0])
        );
        for refused in [&[][..], &["0.3.0"], &["2.0.0"], &["", "one", "1", "1..2"]] {
            checked(refused).unwrap_err();
        }
        assert_eq!(
            checked(&[]).unwrap_err(),
            "kubernetes.io/csi: ValidatePlugin for CSI driver \"d\" failed. Plugin returned an empty list for supported versions"
        );
    }
}
