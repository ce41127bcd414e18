//! Drivers and their volumes on a node.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use machinery_runtime::{Runtime, Watched};
use node_plugin_api::calls::rpc_text;
use node_sys::blocking::BlockingLane;
use node_volume::{CsiStep, VolumeError};
use parking_lot::Mutex;
use tonic::Status;

use super::CALL_TIMEOUT;
use super::drivers::Drivers;
use super::places::Root;
use super::records::{self, Recorded};
use super::requests::lifecycle;
use super::state::State;
use super::turns::Turns;
use super::usage::Usages;
use crate::api::objects::{Objects, WakePod};
use crate::api::printable;
use crate::config::KubeletConfig;
use crate::containers::files;
use crate::plugins::calls::within;
use crate::plugins::sockets::PluginSockets;

/// Drivers and their volumes on a node. Clones are of the same.
#[derive(Clone)]
pub(crate) struct Csi(Arc<Shared>);

impl std::ops::Deref for Csi {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl std::fmt::Debug for Csi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Csi").finish_non_exhaustive()
    }
}

/// State that clones of [`Csi`] share.
pub(crate) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) client: Client,
    pub(super) config: Arc<KubeletConfig>,
    pub(super) objects: Arc<Objects>,
    pub(super) sockets: Arc<dyn PluginSockets>,
    pub(super) drivers: Drivers,
    pub(super) state: Mutex<State>,
    pub(super) usages: Mutex<Usages>,
    /// Names of the volumes that must not be detached.
    in_use: Watched<Vec<String>>,
    /// Changes with every driver that comes, and every volume that may be taken away.
    pub(super) changes: Watched<u64>,
    /// The Node object as it was received last.
    pub(super) node: Watched<Arc<Node>>,
    pub(super) turns: Turns,
    /// Held while the node's objects are read and written.
    pub(super) writing: tokio::sync::Mutex<()>,
    wake: OnceLock<WakePod>,
}

impl Csi {
    /// No driver and no volume yet.
    pub(crate) fn new(
        runtime: &Runtime,
        client: &Client,
        config: &Arc<KubeletConfig>,
        objects: &Arc<Objects>,
        sockets: &Arc<dyn PluginSockets>,
    ) -> Self {
        Self(Arc::new(Shared {
            runtime: runtime.clone(),
            client: client.clone(),
            config: config.clone(),
            objects: objects.clone(),
            sockets: sockets.clone(),
            drivers: Drivers::default(),
            state: Mutex::default(),
            usages: Mutex::default(),
            in_use: Watched::default(),
            changes: Watched::default(),
            node: Watched::default(),
            turns: Turns::default(),
            writing: tokio::sync::Mutex::default(),
            wake: OnceLock::new(),
        }))
    }

    /// Says whom to wake when a driver comes. Once, during assembly.
    pub(crate) fn on_change(&self, wake: WakePod) {
        let _ = self.wake.set(wake);
    }

    /// Adopts the volumes that the agent before this one has written down.
    pub(crate) async fn load(&self) {
        let recorded = recorded(&self.runtime, &self.config).await;
        {
            let mut state = self.state.lock();
            for (uid, name, data) in recorded.of_pods {
                if data.volume_lifecycle_mode != lifecycle(true) {
                    state.found_user(data.key(), (uid, name));
                }
            }
            recorded
                .staged
                .iter()
                .for_each(|data| state.found_staged(data.key()));
        }
        self.changed();
    }
}

async fn recorded(runtime: &Runtime, config: &Arc<KubeletConfig>) -> Recorded {
    let own = config.clone();
    let look = move || records::all(&Root::new(&own.data_dir), files::uids_on_disk(&own));
    runtime.blocking(look).await.unwrap_or_else(|error| {
        tracing::error!(%error, "records of drivers' volumes not read");
        Recorded::default()
    })
}

/// Names of the volumes that an earlier agent has written down, as the Node object shows those that must not be detached: a Node
/// that is recreated has them from the start.
pub(crate) async fn recorded_in_use(runtime: &Runtime, config: &Arc<KubeletConfig>) -> Vec<String> {
    let recorded = recorded(runtime, config).await;
    let of_pods = recorded.of_pods.iter().map(|(_, _, data)| data);
    let shown = of_pods.filter(|data| data.volume_lifecycle_mode != lifecycle(true));
    let names = shown.chain(&recorded.staged).map(|data| data.key().unique_name());
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

impl Shared {
    /// The agent's folders, as it sees them itself.
    pub(super) fn own_root(&self) -> Root {
        Root::new(&self.config.data_dir)
    }

    /// The agent's folders as a driver sees them whose socket lies there: a driver in a pod has upstream's folders, one of the
    /// machine has the agent's own.
    pub(super) fn root_of(&self, endpoint: &Path) -> Root {
        let shown = self.config.plugins_shown_in.as_deref();
        let shown = shown.filter(|shown| endpoint.starts_with(shown));
        Root::new(shown.unwrap_or(&self.config.data_dir))
    }

    /// The Node object has changed.
    pub(crate) fn update_node(&self, node: &Arc<Node>) {
        self.node.replace(node.clone());
    }

    /// Names of the volumes that must not be detached, for the Node object.
    pub(crate) fn in_use(&self) -> Vec<String> {
        self.in_use.get()
    }

    /// Waits until they differ from these.
    pub(crate) async fn in_use_differs(&self, from: &[String]) {
        self.in_use.wait_for(|now| now != from).await;
    }

    /// Drivers or volumes have changed.
    pub(super) fn changed(&self) {
        self.in_use.change(|known| {
            // Under its lock: of two that change it the later one counts.
            let names = self.state.lock().in_use();
            let differs = *known != names;
            *known = names;
            differs
        });
        self.changes.change(|changes| {
            *changes += 1;
            true
        });
    }

    /// A driver has come: pods that wait for it are looked at again.
    pub(super) fn driver_came(&self, name: &str) {
        let waiting = self.state.lock().take_waiting(name);
        if let Some(wake) = self.wake.get() {
            waiting.iter().for_each(|uid| wake(uid));
        }
        self.changed();
    }

    /// The answer of a driver, or that it took too long.
    pub(super) async fn called<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        within(&self.runtime, CALL_TIMEOUT, call).await
    }

    /// A lane for work on files that is no pod's.
    pub(super) fn lane(&self) -> BlockingLane {
        BlockingLane::new(self.runtime.clone())
    }
}

/// A failed call as pods' events and the log have it.
pub(super) fn call_text(status: &Status) -> String {
    printable(&rpc_text(status)).into_owned()
}

/// The failure of a step about a volume.
pub(super) fn failed(step: CsiStep, volume: &str, message: String) -> VolumeError {
    let volume = volume.to_owned();
    VolumeError::Csi {
        step,
        volume,
        message,
    }
}

/// Reports whether a failed call has had no effect, as far as the driver says: upstream's `isFinalError`. A status without an
/// answer of the driver, and those of calls that may go on, say nothing.
pub(super) fn is_final(status: &Status) -> bool {
    use tonic::Code;
    let goes_on = matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
    );
    !goes_on && std::error::Error::source(status).is_none()
}
