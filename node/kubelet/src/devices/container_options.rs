//! Additions of a container's devices to its configuration. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use node_cri::v1;
use node_plugin_api::device_plugin::messages::{ContainerAllocateResponse, DeviceSpec, Mount};

/// Additions to the configuration of a container; of two plugins that give the same name or path the first one counts, in
/// the order of the resources' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ContainerOptions {
    /// Variables. Those of the container itself override them.
    pub(crate) environment: BTreeMap<String, String>,
    mounts: Vec<Mount>,
    /// Paths of the machine by path in the container, of mounts and of devices: an answer may have very many.
    mount_sources: BTreeMap<String, String>,
    devices: Vec<DeviceSpec>,
    device_sources: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    cdi_devices: Vec<String>,
    cdi_names: BTreeSet<String>,
}

impl ContainerOptions {
    /// Adds the answer of a plugin.
    pub(crate) fn add(&mut self, resource: &str, answer: &ContainerAllocateResponse) {
        add_all(resource, "variable", &mut self.environment, &answer.envs);
        add_all(resource, "annotation", &mut self.annotations, &answer.annotations);
        for mount in &answer.mounts {
            match self.mount_sources.get(&mount.container_path) {
                None => {
                    let (path, source) = (mount.container_path.clone(), mount.host_path.clone());
                    self.mount_sources.insert(path, source);
                    self.mounts.push(mount.clone());
                }
                Some(own) if *own == mount.host_path => {}
                Some(_) => conflict(resource, "mount", &mount.container_path),
            }
        }
        for device in &answer.devices {
            match self.device_sources.get(&device.container_path) {
                None => {
                    let (path, source) = (device.container_path.clone(), device.host_path.clone());
                    self.device_sources.insert(path, source);
                    self.devices.push(device.clone());
                }
                Some(own) if *own == device.host_path => {}
                Some(_) => conflict(resource, "device", &device.container_path),
            }
        }
        for device in &answer.cdi_devices {
            if self.cdi_names.insert(device.name.clone()) {
                self.cdi_devices.push(device.name.clone());
            }
        }
    }

    /// Puts the container's own variables behind those of its devices, which they override.
    pub(crate) fn before(&self, environment: Vec<(String, String)>) -> Vec<(String, String)> {
        let is_own = |name: &str| environment.iter().any(|(own, _)| own == name);
        let added = self.environment.iter().filter(|(name, _)| !is_own(name));
        let added: Vec<(String, String)> = added.map(|(name, value)| (name.clone(), value.clone())).collect();
        added.into_iter().chain(environment).collect()
    }

    /// Adds everything but the variables. The configuration's own values stay.
    pub(crate) fn apply(&self, config: &mut v1::ContainerConfig) {
        let mounts = self.mounts.iter().map(|mount| v1::Mount {
            container_path: mount.container_path.clone(),
            host_path: mount.host_path.clone(),
            readonly: mount.read_only,
            ..v1::Mount::default()
        });
        // Volumes come behind, as upstream's: they are mounted over what a plugin gives.
        config.mounts = mounts.chain(std::mem::take(&mut config.mounts)).collect();
        config
            .devices
            .extend(self.devices.iter().map(|device| v1::Device {
                container_path: device.container_path.clone(),
                host_path: device.host_path.clone(),
                permissions: device.permissions.clone(),
            }));
        for (name, value) in &self.annotations {
            let own = config.annotations.entry(name.clone());
            own.or_insert_with(|| value.clone());
        }
        config.cdi_devices.extend(
            self.cdi_devices
                .iter()
                .map(|name| v1::CdiDevice { name: name.clone() }),
        );
    }
}

fn add_all(
    resource: &str,
    kind: &'static str,
    into: &mut BTreeMap<String, String>,
    from: &HashMap<String, String>,
) {
    for (name, value) in from {
        match into.get(name) {
            None => drop(into.insert(name.clone(), value.clone())),
            Some(own) if own == value => {}
            Some(_) => conflict(resource, kind, name),
        }
    }
}

fn conflict(resource: &str, kind: &'static str, name: &str) {
    tracing::error!(
        resource,
        kind,
        name,
        "two device plugins differ, the first one counts"
    );
}
