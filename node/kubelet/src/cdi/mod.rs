//! Devices of the Container Device Interface for runtimes that do not know it, as containerd before 1.7.2: the agent reads their
//! descriptions ([`folder`], [`description`]) and adds to a container's configuration what they say ([`edits`]).
//!
//! Descriptions are written by drivers and administrators below `/etc/cdi` and `/var/run/cdi`. The agent can give what the runtime's API
//! has: variables, device files, mounts and groups. A device that needs more, as a hook, is refused by name.
//!
//! Never: a container that runs with less than its devices say.

mod description;
mod edits;
mod folder;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use node_cri::v1::ContainerConfig;

use crate::static_pods::folder::Decode;

/// Devices of one container.
const DEVICES_MAX: usize = 1_024;
/// Oldest version of containerd that reads the devices of its API.
const CONTAINERD_SINCE: (u32, u32, u32) = (1, 7, 2);

/// Source of descriptions.
#[derive(Debug, Clone)]
pub struct CdiSource {
    /// Folders of their files; the last one counts most.
    pub folders: Vec<PathBuf>,
    /// Reader of a file's format.
    pub decode: Decode,
}

impl Default for CdiSource {
    /// The interface's own folders, and files in JSON alone.
    fn default() -> Self {
        Self {
            folders: ["/etc/cdi", "/var/run/cdi"].map(PathBuf::from).into(),
            decode: |content| serde_json::from_slice(content).map_err(|error| error.to_string()),
        }
    }
}

/// Reports whether a runtime, such as `containerd://1.6.20~ds1`, gives devices of the interface to containers itself.
pub(crate) fn is_known_to(runtime: &str) -> bool {
    let Some(version) = runtime.strip_prefix("containerd://") else {
        return true;
    };
    let mut numbers = version.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok());
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor, next().unwrap_or(0)) >= CONTAINERD_SINCE,
        _ => true,
    }
}

/// Adds the devices that a configuration names to it, in the place of their names. Blocks.
///
/// # Errors
/// A device is not described, or needs what the runtime's API has not.
pub(crate) fn inject(source: &CdiSource, config: &mut ContainerConfig) -> Result<(), String> {
    let names = std::mem::take(&mut config.cdi_devices);
    if names.is_empty() {
        return Ok(());
    }
    let injected = if names.len() > DEVICES_MAX {
        Err(format!("{} devices, more than {DEVICES_MAX}", names.len()))
    } else {
        let found = folder::find(source, names.iter().map(|device| device.name.as_str()));
        found.and_then(|found| edits::apply(&found, config))
    };
    injected.map_err(|error| format!("CDI device injection failed: {error}"))
}
