//! Additions of devices to a container's configuration, within what the runtime's API has. Blocks: device files are looked at.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use node_cri::v1::{ContainerConfig, Device, KeyValue, Mount, MountPropagation};

use super::description::{self, DeviceNode, Edits};
use super::folder::FoundDevice;

/// Variables, files, mounts and groups that the devices of a container add.
const EDITS_MAX: usize = 4_096;
const NEEDS: &str = "which needs containerd 1.7.2 or later";

/// Adds all that devices say: of each file what is for all of its devices, then what is a device's own.
pub(super) fn apply(devices: &[FoundDevice], config: &mut ContainerConfig) -> Result<(), String> {
    let (mut files, mut count) = (BTreeSet::new(), 0);
    for found in devices {
        let shared = files.insert(&found.file).then_some(&found.shared);
        for edits in shared.into_iter().chain([&found.device.container_edits]) {
            count += size(edits);
            if count > EDITS_MAX {
                return Err(format!(
                    "devices add more than {EDITS_MAX} variables, files, mounts and groups"
                ));
            }
            let added = add(edits, config);
            added.map_err(|error| format!("CDI device {:?} {error}", found.name))?;
        }
    }
    Ok(())
}

fn size(edits: &Edits) -> usize {
    edits.env.as_ref().map_or(0, Vec::len)
        + edits.device_nodes.as_ref().map_or(0, Vec::len)
        + edits.mounts.as_ref().map_or(0, Vec::len)
        + edits.additional_gids.as_ref().map_or(0, Vec::len)
}

fn add(edits: &Edits, config: &mut ContainerConfig) -> Result<(), String> {
    if let Some(other) = edits.others.iter().find(|(_, value)| !is_nothing(value)) {
        return Err(format!("has {}, {NEEDS}", other.0));
    }
    for variable in edits.env.iter().flatten() {
        let (key, value) = variable
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| format!("has the variable {variable:?} without a name and a value"))?;
        config.envs.retain(|own| own.key != key);
        config.envs.push(KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
        });
    }
    for node in edits.device_nodes.iter().flatten() {
        let device = device(node)?;
        config
            .devices
            .retain(|own| own.container_path != device.container_path);
        config.devices.push(device);
    }
    for own in edits.mounts.iter().flatten() {
        let mount = mount(own)?;
        config
            .mounts
            .retain(|own| own.container_path != mount.container_path);
        config.mounts.push(mount);
    }
    add_groups(edits, config);
    Ok(())
}

/// Adds groups, each once. As for the interface's own library the group of root is none of them.
fn add_groups(edits: &Edits, config: &mut ContainerConfig) {
    let groups = edits.additional_gids.iter().flatten().copied().map(i64::from);
    for group in groups.filter(|group| *group != 0) {
        let linux = config.linux.get_or_insert_default();
        let security = linux.security_context.get_or_insert_default();
        if !security.supplemental_groups.contains(&group) {
            security.supplemental_groups.push(group);
        }
    }
}

fn is_nothing(value: &serde_json::Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// The file of a device; the runtime takes its type, numbers, mode and owner from the machine's.
fn device(node: &DeviceNode) -> Result<Device, String> {
    let host_path = node.host_path.clone().filter(|path| !path.is_empty());
    let host_path = host_path.unwrap_or_else(|| node.path.clone());
    if let Some(other) = node.others.iter().find(|(_, value)| !is_nothing(value)) {
        return Err(format!("has {} of {host_path}, {NEEDS}", other.0));
    }
    let found = std::fs::metadata(&host_path).map_err(|error| format!("has no {host_path}: {error}"))?;
    let file_type = found.file_type();
    let own_type = match (
        file_type.is_block_device(),
        file_type.is_char_device(),
        file_type.is_fifo(),
    ) {
        (true, ..) => "b",
        (_, true, _) => "c",
        (_, _, true) => "p",
        _ => return Err(format!("has {host_path}, which is no device")),
    };
    let numbers = (major(found.rdev()), minor(found.rdev()));
    let described = node.r#type.as_deref().filter(|own| !own.is_empty());
    let is_other_type = described.is_some_and(|own| own != own_type && (own, own_type) != ("u", "c"));
    // Go writes numbers that are not set as 0, too.
    let differs =
        |described: Option<u64>, own: u64| described.is_some_and(|number| number != 0 && number != own);
    if is_other_type || differs(node.major, numbers.0) || differs(node.minor, numbers.1) {
        return Err(format!("describes {host_path} as another device than it is"));
    }
    let mode = found.mode() & 0o7777;
    let is_other_mode = node.file_mode.is_some_and(|own| own != 0 && own & 0o7777 != mode);
    let is_other_owner =
        node.uid.is_some_and(|own| own != found.uid()) || node.gid.is_some_and(|own| own != found.gid());
    if is_other_mode || is_other_owner {
        return Err(format!("changes mode or owner of {host_path}, {NEEDS}"));
    }
    let permissions = node.permissions.clone().filter(|own| !own.is_empty());
    Ok(Device {
        container_path: node.path.clone(),
        host_path,
        permissions: permissions.unwrap_or_else(|| "rwm".to_owned()),
    })
}

/// As glibc's `major` and `minor`.
fn major(device: u64) -> u64 {
    ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff)
}

fn minor(device: u64) -> u64 {
    (device & 0xff) | ((device >> 12) & !0xff)
}

fn mount(own: &description::Mount) -> Result<Mount, String> {
    let place = &own.container_path;
    if let Some(other) = own.others.iter().find(|(_, value)| !is_nothing(value)) {
        return Err(format!("has {} of the mount {place}, {NEEDS}", other.0));
    }
    let kind = own.r#type.as_deref().unwrap_or_default();
    if !matches!(kind, "" | "none" | "bind") {
        return Err(format!("mounts {kind} at {place}, {NEEDS}"));
    }
    let mut mount = Mount {
        container_path: place.clone(),
        host_path: own.host_path.clone(),
        ..Mount::default()
    };
    for option in own.options.iter().flatten() {
        let propagation = match option.as_str() {
            "ro" => {
                mount.readonly = true;
                continue;
            }
            "rw" | "bind" | "rbind" => continue,
            "private" | "rprivate" => MountPropagation::PropagationPrivate,
            "slave" | "rslave" => MountPropagation::PropagationHostToContainer,
            "shared" | "rshared" => MountPropagation::PropagationBidirectional,
            other => return Err(format!("mounts {place} with the option {other:?}, {NEEDS}")),
        };
        mount.propagation = propagation.into();
    }
    if ![place, &own.host_path].iter().all(|path| path.starts_with('/')) {
        return Err(format!(
            "mounts {:?} at {place:?}, which are no absolute paths",
            own.host_path
        ));
    }
    // Where there is nothing the runtime would make a folder on the machine.
    match std::fs::metadata(&own.host_path) {
        Ok(_) => Ok(mount),
        Err(error) => Err(format!("has no {}: {error}", own.host_path)),
    }
}
