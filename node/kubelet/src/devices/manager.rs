//! The devices of a node: which there are, and which pod has them. [`super::allocating`] gives them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_runtime::{CancellationToken, Runtime, Watched};
use node_plugin_api::device_plugin::client::PluginClient;
use node_plugin_api::device_plugin::messages::DevicePluginOptions;
use parking_lot::Mutex;

use super::checkpoint::Data;
use super::inventory::{KnownDevice, NodeDevices, is_extended_resource};
use super::metrics::DeviceMetrics;
use super::state::State;
use crate::plugins::sockets::PluginSockets;
use crate::pods::uid;
use crate::saving::Saver;

/// The devices of a node.
#[derive(Debug)]
pub(crate) struct DeviceManager {
    pub(super) runtime: Runtime,
    sockets: Arc<dyn PluginSockets>,
    /// Of the sockets, and of the checkpoint.
    folder: PathBuf,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) saver: Saver<State>,
    /// One pod at a time is given devices of a resource, until it is admitted or rejected: see [`super::admission`].
    pub(super) turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Numbers of devices, as the Node object is to show them.
    node_devices: Watched<NodeDevices>,
    /// Changes with every plugin that comes, lists or goes.
    pub(super) plugins: Watched<u64>,
    /// Set once all pods that have devices are known.
    pub(super) settled: Watched<bool>,
    pub(super) metrics: DeviceMetrics,
}

impl DeviceManager {
    /// No plugin and no allocation yet.
    pub(crate) fn new(runtime: Runtime, sockets: Arc<dyn PluginSockets>, folder: PathBuf) -> Self {
        let state = Arc::<Mutex<State>>::default();
        Self {
            metrics: DeviceMetrics::new(&runtime),
            saver: Saver::new(runtime.clone(), folder.clone(), state.clone()),
            runtime,
            sockets,
            folder,
            state,
            turns: Mutex::default(),
            node_devices: Watched::default(),
            plugins: Watched::default(),
            settled: Watched::default(),
        }
    }

    /// Goes on with what the agent before this one has saved. Without it the node goes on, too, as upstream's.
    pub(crate) async fn load(&self) {
        let folder = self.folder.clone();
        let loaded = self.runtime.blocking(move || Data::load(&folder)).await;
        match loaded {
            Ok(Ok(None)) => self.state.lock().is_unread = true,
            Ok(Ok(Some(data))) => {
                let mut state = self.state.lock();
                state.inventory.expect(data.resources(), self.runtime.monotonic());
                state.allocations = data.allocations();
                drop(state);
                self.plugins_changed();
            }
            Ok(Err(error)) => self.not_read(&error),
            Err(error) => self.not_read(&error),
        }
    }

    fn not_read(&self, error: &dyn std::fmt::Display) {
        tracing::error!(%error, "allocated devices not read");
        self.state.lock().is_unread = true;
    }

    /// Adopts the resources that the Node object has where no checkpoint was read: it has none of their devices until their
    /// plugins are there, and no container that requests one starts without. Upstream's `ShouldResetExtendedResourceCapacity`.
    pub(crate) fn expect_of(&self, node: &Node) {
        {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.is_unread) {
                return;
            }
            let status = node.status.as_ref();
            let lists = status.map(|status| [status.capacity.as_ref(), status.allocatable.as_ref()]);
            let names = lists.into_iter().flatten().flatten().flat_map(BTreeMap::keys);
            let names = names.filter(|name| is_extended_resource(name)).cloned();
            state.inventory.expect(names, self.runtime.monotonic());
            state.generation += 1;
        }
        self.plugins_changed();
        self.saver.save_soon();
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(super) fn sockets(&self) -> &dyn PluginSockets {
        self.sockets.as_ref()
    }

    /// Folder of the plugins' sockets.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn count_registration(&self, resource: &str) {
        self.metrics.registrations.of(&[resource]).inc();
    }

    /// A plugin has registered: see [`Inventory::connect`].
    pub(super) fn connected(
        &self,
        resource: &str,
        client: PluginClient,
        options: DevicePluginOptions,
    ) -> Option<(u64, CancellationToken)> {
        let connected = {
            let mut state = self.state.lock();
            let connected = state.inventory.connect(resource, client, options);
            state.generation += u64::from(connected.is_some());
            connected
        };
        self.plugins_changed();
        connected
    }

    /// A plugin has listed its devices.
    ///
    /// # Errors
    /// The node has no room for them.
    pub(super) fn listed(
        &self,
        resource: &str,
        registration: u64,
        devices: BTreeMap<String, KnownDevice>,
    ) -> Result<(), String> {
        let count = devices.len();
        let differs = {
            let mut state = self.state.lock();
            let differs = state.inventory.list(resource, registration, devices)?;
            state.generation += u64::from(differs);
            state.see(resource);
            differs
        };
        if differs {
            tracing::debug!(resource, count, "device plugin listed its devices");
            self.plugins_changed();
            self.saver.save_soon();
        }
        Ok(())
    }

    /// A plugin has gone.
    pub(super) fn stopped(&self, resource: &str, registration: u64, why: &str) {
        let now = self.runtime.monotonic();
        if self.state.lock().inventory.stop(resource, registration, now) {
            tracing::warn!(
                resource,
                error = why,
                "device plugin stopped, its devices are unhealthy"
            );
            self.plugins_changed();
        }
    }

    fn plugins_changed(&self) {
        self.node_devices.change(|known| {
            // Under its lock: of two that change it the later one counts.
            let numbers = self.state.lock().inventory.node_devices();
            let differs = *known != numbers;
            *known = numbers;
            differs
        });
        self.plugins.change(|changes| {
            *changes += 1;
            true
        });
    }

    /// Numbers of devices for the Node object.
    pub(crate) fn node_devices(&self) -> NodeDevices {
        let expired = {
            let mut state = self.state.lock();
            let expired = state.inventory.expire(self.runtime.monotonic());
            state.generation += u64::from(expired);
            expired
        };
        if expired {
            self.plugins_changed();
            self.saver.save_soon();
        }
        self.node_devices.get()
    }

    /// Waits until the numbers differ from these.
    pub(crate) async fn node_devices_differ(&self, from: &NodeDevices) {
        self.node_devices.wait_for(|now| now != from).await;
    }

    /// Numbers of devices that pods have, by resource, where this pod has some: a node has no less than that, whatever has
    /// become of the plugins. Upstream's `sanitizeNodeAllocatable`.
    pub(crate) fn held_by_all(&self, pod: &Pod) -> BTreeMap<String, usize> {
        let state = self.state.lock();
        match state.allocations.has_pod(uid(pod)) {
            true => state.allocations.counts(),
            false => BTreeMap::new(),
        }
    }

    /// All pods are known: those have no devices any more of which the node knows nothing.
    pub(crate) fn settle(&self, is_known: impl Fn(&str) -> bool) {
        let freed = {
            let mut state = self.state.lock();
            let freed = state.allocations.retain(is_known);
            state.generation += u64::from(freed);
            freed
        };
        self.settled.replace(true);
        if freed {
            self.saver.save_soon();
        }
    }

    /// Takes a pod's devices away. The disk is not waited for: the next agent takes them away, too, from pods that it does
    /// not know.
    pub(crate) fn release(&self, uid: &str) {
        let freed = {
            let mut state = self.state.lock();
            let freed = state.allocations.release(uid);
            state.generation += u64::from(freed);
            freed
        };
        if freed {
            self.saver.save_soon();
        }
    }

    /// Takes away what containers of a pod were given of these resources.
    pub(super) fn take_back(&self, uid: &str, given: &[(String, String)]) {
        if given.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for (container, resource) in given {
            state.allocations.remove(uid, container, resource);
        }
        state.generation += 1;
        drop(state);
        self.saver.save_soon();
    }

    /// Returns the devices of a container by resource, each with its NUMA nodes.
    pub(crate) fn devices_of(
        &self,
        uid: &str,
        container: &str,
    ) -> BTreeMap<String, BTreeMap<String, Vec<i64>>> {
        let state = self.state.lock();
        let own = state.allocations.of(uid, container).into_iter().flatten();
        own.map(|(resource, allocation)| (resource.clone(), allocation.devices.clone()))
            .collect()
    }

    /// Returns all healthy devices by resource, each with its NUMA nodes.
    pub(crate) fn healthy(&self) -> BTreeMap<String, BTreeMap<String, Vec<i64>>> {
        self.state.lock().inventory.healthy_devices()
    }
}
