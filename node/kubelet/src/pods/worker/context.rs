//! Context of the workers: what all of them share, and the input of each.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use machinery_runtime::{CancellationToken, Runtime, Watched};
use node_sys::mount::Mounter;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::events::NodeEvents;
use crate::api::objects::{Objects, WakePod};
use crate::containers::control::ContainerControl;
use crate::csi::Csi;
use crate::devices::manager::DeviceManager;
use crate::dra::Dra;
use crate::eviction::metrics::EvictionMetrics;
use crate::eviction::pod_storage::StorageLooks;
use crate::logs::following::FollowedLogs;
use crate::metrics::probes::ProbeMetrics;
use crate::node::pressure::Pressure;
use crate::pods::disruption::Disruption;
use crate::pods::resize::allocation::NodeAllocations;
use crate::resource_managers::manager::ResourceManagers;
use crate::static_pods::mirrors::Mirrors;

/// Context that all workers share.
pub(crate) struct WorkerContext {
    /// Clock and tasks.
    pub(crate) runtime: Runtime,
    /// The API.
    pub(crate) client: kube::Client,
    /// The runtime's hands.
    pub(crate) control: ContainerControl,
    /// ConfigMaps, Secrets, tokens.
    pub(crate) objects: Arc<Objects>,
    /// Mounts of volumes.
    pub(crate) mounter: Arc<dyn Mounter>,
    /// Recorder of events.
    pub(crate) events: NodeEvents,
    /// Uid of the pod of each container and sandbox.
    pub(crate) owners: Mutex<HashMap<String, String>>,
    /// Allocations of the node by pod.
    pub(crate) allocations: NodeAllocations,
    /// Devices of plugins.
    pub(crate) devices: Arc<DeviceManager>,
    /// Processors and memory that containers have for themselves.
    pub(crate) resource_managers: Arc<ResourceManagers>,
    /// Volumes of drivers.
    pub(crate) csi: Csi,
    /// Devices of claims.
    pub(crate) dra: Dra,
    /// Ends the pod with this uid for a critical one.
    pub(crate) preempt: OnceLock<WakePod>,
    /// The newest version of the Node object; the agent's own until one was received from the API server.
    pub(crate) node: Arc<Mutex<Arc<Node>>>,
    /// Set once the Node object was received from the API server.
    pub(crate) node_known: Watched<bool>,
    /// Containers and sandboxes that containerd reported as ended, and that no worker has observed as ended yet.
    pub(crate) exited: Mutex<HashSet<String>>,
    /// Containers whose logs are followed.
    pub(crate) followed: Arc<FollowedLogs>,
    /// Resources that the node is short of.
    pub(crate) pressure: Arc<Watched<Pressure>>,
    /// Sizes of pods' files.
    pub(crate) storage: Arc<StorageLooks>,
    /// Counts of evictions.
    pub(crate) evictions: Mutex<EvictionMetrics>,
    /// Pods of the API server that show static ones.
    pub(crate) mirrors: Arc<Mirrors>,
    /// Figures of probes.
    pub(crate) probe_metrics: Arc<ProbeMetrics>,
    /// The machine goes down.
    pub(crate) shutting_down: Arc<Watched<bool>>,
}

impl std::fmt::Debug for WorkerContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerContext").finish_non_exhaustive()
    }
}

impl WorkerContext {
    /// This node's object has changed. One that does not say what it has keeps what it had.
    pub(crate) fn update_node(&self, mut node: Node) {
        let mut known = self.node.lock();
        let status = node.status.get_or_insert_default();
        if status.allocatable.is_none() {
            let before = known.status.as_ref();
            status.allocatable = before.and_then(|before| before.allocatable.clone());
        }
        *known = Arc::new(node);
        self.devices.expect_of(&known);
        self.csi.update_node(&known);
        drop(known);
        self.node_known.replace(true);
    }

    /// Reports whether the Node object was received from the API server.
    pub(crate) fn node_is_known(&self) -> bool {
        self.node_known.get()
    }
}

/// Input of a worker: the current pod, and its wakers.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The newest version.
    pub(crate) pod: Mutex<Arc<Pod>>,
    /// Last status of its worker, written to the API server or not.
    pub(crate) status: Mutex<Option<Arc<PodStatus>>>,
    /// The object is gone from the API server: end it without writing.
    pub(crate) gone: std::sync::atomic::AtomicBool,
    /// Cancelled when the pod is to end, for whatever reason: what its worker does for it to run is dropped.
    pub(crate) ending: CancellationToken,
    /// Wakes the worker.
    pub(crate) wake: Arc<Notify>,
    /// Set when sandboxes or containers may have come or gone without the worker.
    pub(crate) unlisted: std::sync::atomic::AtomicBool,
    /// The order to end without a request of the API.
    pub(crate) disruption: Mutex<Option<Disruption>>,
    /// Nothing of the pod runs any more, and its volumes are taken down.
    pub(crate) taken_down: Watched<bool>,
}
