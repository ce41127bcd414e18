//! Devices by resource, and the state of the plugin of each. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machinery_meta::syntax;
use machinery_runtime::CancellationToken;
use node_plugin_api::device_plugin::HEALTHY;
use node_plugin_api::device_plugin::client::PluginClient;
use node_plugin_api::device_plugin::messages::{Device, DevicePluginOptions};

use super::choice::Nearness;
use super::{DEVICES_MAX, ID_BYTES_MAX, LISTS_WEIGHT_MAX, NODES_MAX, PLUGINS_MAX};
use crate::resource_managers::hints::NodeMask;

/// Devices of a plugin that is gone count toward the node's capacity for this long; upstream's `endpointStopGracePeriod`.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(300);

/// Numbers of devices by resource, as the Node object shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeDevices {
    /// Devices that there are.
    pub(crate) capacity: BTreeMap<String, usize>,
    /// Devices that are healthy.
    pub(crate) allocatable: BTreeMap<String, usize>,
}

/// A device as its plugin describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownDevice {
    /// It can be allocated, as far as its plugin knows.
    pub(super) healthy: bool,
    /// NUMA nodes that are near.
    pub(super) nodes: Vec<i64>,
}

/// A plugin that is there.
#[derive(Debug, Clone)]
pub(super) struct Connected {
    /// Its place among all registrations of this agent.
    pub(super) registration: u64,
    /// The plugin.
    pub(super) client: PluginClient,
    /// Optional calls that it wants.
    pub(super) options: DevicePluginOptions,
    /// Cancelled when another plugin registers for its resource.
    replaced: CancellationToken,
    /// It has listed its devices.
    has_listed: bool,
}

impl KnownDevice {
    /// Its NUMA nodes; a plugin may name some that no machine has.
    pub(super) fn mask(&self) -> NodeMask {
        let nodes = self.nodes.iter().copied();
        nodes.filter_map(|node| u32::try_from(node).ok()).collect()
    }

    /// Bytes that the node keeps for it, about: see [`LISTS_WEIGHT_MAX`].
    fn weight(&self, id: &str) -> usize {
        id.len() + (self.nodes.len() + 8) * size_of::<i64>()
    }
}

/// State of a resource's plugin.
#[derive(Debug, Clone)]
enum PluginState {
    /// The agent before this one knew it; it has not registered yet.
    Awaited {
        /// Since then, of the monotonic clock.
        since: Duration,
    },
    Connected(Connected),
    /// Its stream has ended.
    Stopped {
        since: Duration,
        options: DevicePluginOptions,
    },
    /// It has been away for too long: the node has none of its devices any more.
    Gone,
}

/// Reason why a plugin cannot be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// It has not registered since the agent started.
    Awaited,
    /// It has stopped a short while ago; the optional calls that it wanted.
    Stopped(DevicePluginOptions),
    /// It is not known, or not any more.
    Gone,
}

#[derive(Debug, Clone)]
struct Resource {
    devices: BTreeMap<String, KnownDevice>,
    plugin: PluginState,
}

/// All resources.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    resources: BTreeMap<String, Resource>,
    registrations: u64,
}

impl Inventory {
    /// Adopts the resources that the agent before this one knew. None of their devices is there before its plugin is.
    /// Of too many the first ones are taken.
    pub(super) fn expect(&mut self, resources: impl IntoIterator<Item = String>, now: Duration) {
        for name in resources {
            if self.resources.len() >= PLUGINS_MAX {
                return;
            }
            let resource = Resource {
                devices: BTreeMap::new(),
                plugin: PluginState::Awaited { since: now },
            };
            self.resources.entry(name).or_insert(resource);
        }
    }

    /// Resources whose plugin is there, or may come back, with their healthy devices.
    pub(super) fn registered(&self) -> BTreeMap<String, Vec<String>> {
        let known = self.resources.iter();
        known
            .filter(|(_, resource)| !matches!(resource.plugin, PluginState::Gone))
            .map(|(name, resource)| (name.clone(), resource.healthy().cloned().collect()))
            .collect()
    }

    /// A plugin has registered; one before it is no longer called. Returns the number of the registration, and a token that
    /// is cancelled when another takes its place; `None` where [`PLUGINS_MAX`] are there already.
    pub(super) fn connect(
        &mut self,
        resource: &str,
        client: PluginClient,
        options: DevicePluginOptions,
    ) -> Option<(u64, CancellationToken)> {
        if !self.make_place(resource) {
            return None;
        }
        self.registrations += 1;
        let (registration, replaced) = (self.registrations, CancellationToken::new());
        let plugin = PluginState::Connected(Connected {
            registration,
            client,
            options,
            replaced: replaced.clone(),
            has_listed: false,
        });
        let known = self.resources.entry(resource.to_owned()).or_insert(Resource {
            devices: BTreeMap::new(),
            plugin: PluginState::Gone,
        });
        if let PluginState::Connected(before) = std::mem::replace(&mut known.plugin, plugin) {
            before.replaced.cancel();
        }
        Some((registration, replaced))
    }

    /// Forgets a resource whose plugin is gone where another needs its place; false where there is none.
    fn make_place(&mut self, resource: &str) -> bool {
        if self.resources.contains_key(resource) || self.resources.len() < PLUGINS_MAX {
            return true;
        }
        let mut known = self.resources.iter();
        let gone = known.find(|(_, known)| matches!(known.plugin, PluginState::Gone));
        let gone = gone.map(|(name, _)| name.clone());
        gone.is_some_and(|name| self.resources.remove(&name).is_some())
    }

    /// Reports whether this registration of a resource is the one in force.
    pub(super) fn is_current(&self, resource: &str, registration: u64) -> bool {
        self.connected(resource)
            .is_ok_and(|plugin| plugin.registration == registration)
    }

    /// The plugin of a registration has listed its devices; false where they are as before, or another has registered since.
    ///
    /// # Errors
    /// All plugins together have listed more than the node keeps.
    pub(super) fn list(
        &mut self,
        resource: &str,
        registration: u64,
        devices: BTreeMap<String, KnownDevice>,
    ) -> Result<bool, String> {
        if !self.is_current(resource, registration) {
            return Ok(false);
        }
        let others = self.resources.iter().filter(|(name, _)| *name != resource);
        let others: usize = others.map(|(_, known)| weight(&known.devices)).sum();
        if others + weight(&devices) > LISTS_WEIGHT_MAX {
            let count = devices.len();
            return Err(format!(
                "no room for {count} devices beside those of other plugins"
            ));
        }
        let Some(known) = self.resources.get_mut(resource) else {
            return Ok(false);
        };
        let mut differs = known.devices != devices;
        known.devices = devices;
        if let PluginState::Connected(plugin) = &mut known.plugin {
            differs |= !std::mem::replace(&mut plugin.has_listed, true);
        }
        Ok(differs)
    }

    /// The plugin of a registration has gone: none of its devices is healthy. False where another has registered since.
    pub(super) fn stop(&mut self, resource: &str, registration: u64, now: Duration) -> bool {
        if !self.is_current(resource, registration) {
            return false;
        }
        let Some(known) = self.resources.get_mut(resource) else {
            return false;
        };
        let options = match &known.plugin {
            PluginState::Connected(plugin) => plugin.options,
            _ => DevicePluginOptions::default(),
        };
        known.plugin = PluginState::Stopped { since: now, options };
        known
            .devices
            .values_mut()
            .for_each(|device| device.healthy = false);
        true
    }

    /// Forgets the devices of plugins that have been away for longer than [`STOP_GRACE`]; true where there are any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let mut any = false;
        for resource in self.resources.values_mut() {
            let since = match resource.plugin {
                PluginState::Awaited { since } | PluginState::Stopped { since, .. } => since,
                PluginState::Connected(_) | PluginState::Gone => continue,
            };
            if now.saturating_sub(since) > STOP_GRACE {
                resource.plugin = PluginState::Gone;
                resource.devices.clear();
                any = true;
            }
        }
        any
    }

    /// Returns the plugin of a resource, or why it cannot be called.
    pub(super) fn connected(&self, resource: &str) -> Result<&Connected, Absence> {
        match self.resources.get(resource).map(|known| &known.plugin) {
            Some(PluginState::Connected(plugin)) => Ok(plugin),
            Some(PluginState::Awaited { .. }) => Err(Absence::Awaited),
            Some(PluginState::Stopped { options, .. }) => Err(Absence::Stopped(*options)),
            Some(PluginState::Gone) | None => Err(Absence::Gone),
        }
    }

    /// Reports whether the plugin of a resource is there, or may come back.
    pub(super) fn is_registered(&self, resource: &str) -> bool {
        !matches!(self.connected(resource), Err(Absence::Gone))
    }

    /// Reports whether the devices of a resource are about to be known: its plugin has not registered since the agent started,
    /// or not listed them yet.
    pub(super) fn awaits(&self, resource: &str) -> bool {
        match self.connected(resource) {
            Ok(plugin) => !plugin.has_listed,
            Err(absence) => absence == Absence::Awaited,
        }
    }

    /// The healthy devices of a resource; `None` where it is not registered.
    pub(super) fn healthy(&self, resource: &str) -> Option<BTreeSet<&str>> {
        let known = self.resources.get(resource)?;
        self.is_registered(resource)
            .then(|| known.healthy().map(String::as_str).collect())
    }

    /// A device as its plugin describes it.
    pub(super) fn device(&self, resource: &str, id: &str) -> Option<&KnownDevice> {
        self.resources.get(resource)?.devices.get(id)
    }

    /// Reports whether a resource has devices with NUMA nodes.
    pub(super) fn has_places(&self, resource: &str) -> bool {
        let known = self.resources.get(resource);
        known.is_some_and(|known| known.devices.values().any(|device| !device.nodes.is_empty()))
    }

    /// Reports where a device is beside NUMA nodes.
    pub(super) fn nearness(&self, resource: &str, id: &str, nodes: NodeMask) -> Nearness {
        let own = self.device(resource, id).map(KnownDevice::mask);
        match own {
            Some(own) if own.and(nodes).count() > 0 => Nearness::Near,
            Some(own) if own.count() > 0 => Nearness::Far,
            _ => Nearness::Nowhere,
        }
    }

    /// NUMA nodes of all devices of a resource.
    pub(super) fn places(&self, resource: &str) -> Vec<NodeMask> {
        let known = self.resources.get(resource).into_iter();
        let devices = known.flat_map(|known| known.devices.values());
        devices.map(KnownDevice::mask).collect()
    }

    /// All healthy devices by resource, each with its NUMA nodes.
    pub(super) fn healthy_devices(&self) -> BTreeMap<String, BTreeMap<String, Vec<i64>>> {
        let healthy = |resource: &Resource| {
            let all = resource.devices.iter().filter(|(_, device)| device.healthy);
            all.map(|(id, device)| (id.clone(), device.nodes.clone()))
                .collect()
        };
        let known = self.resources.iter();
        known
            .map(|(name, resource)| (name.clone(), healthy(resource)))
            .collect()
    }

    /// Numbers for the Node object. A resource that has no devices any more has none, as upstream.
    pub(super) fn node_devices(&self) -> NodeDevices {
        let mut numbers = NodeDevices::default();
        for (name, resource) in &self.resources {
            numbers.capacity.insert(name.clone(), resource.devices.len());
            numbers
                .allocatable
                .insert(name.clone(), resource.healthy().count());
        }
        numbers
    }
}

impl Resource {
    fn healthy(&self) -> impl Iterator<Item = &String> {
        let all = self.devices.iter();
        all.filter(|(_, device)| device.healthy).map(|(id, _)| id)
    }
}

fn weight(devices: &BTreeMap<String, KnownDevice>) -> usize {
    devices.iter().map(|(id, device)| device.weight(id)).sum()
}

/// Reports whether a resource can be a plugin's: upstream's `IsExtendedResourceName`.
pub(super) fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && syntax::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Applies a plugin's list.
///
/// # Errors
/// More of something than the node keeps.
pub(super) fn devices(listed: Vec<Device>) -> Result<BTreeMap<String, KnownDevice>, String> {
    if listed.len() > DEVICES_MAX {
        return Err(format!("{} devices, more than {DEVICES_MAX}", listed.len()));
    }
    let mut devices = BTreeMap::new();
    for device in listed {
        if device.id.is_empty() || device.id.len() > ID_BYTES_MAX {
            let length = device.id.len();
            return Err(format!("a device id of {length} bytes, not 1 to {ID_BYTES_MAX}"));
        }
        let nodes = device.topology.map(|topology| topology.nodes).unwrap_or_default();
        if nodes.len() > NODES_MAX {
            return Err(format!(
                "a device of {} NUMA nodes, more than {NODES_MAX}",
                nodes.len()
            ));
        }
        let known = KnownDevice {
            healthy: device.health == HEALTHY,
            nodes: nodes.into_iter().map(|node| node.id).collect(),
        };
        devices.insert(device.id, known);
    }
    Ok(devices)
}
