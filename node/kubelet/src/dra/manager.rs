//! Drivers of a node, and the claims that they have prepared.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;
use machinery_runtime::{Runtime, Watched};
use node_plugin_api::calls::{Transport, code_name};
use parking_lot::Mutex;
use tonic::{Code, Status};

use super::CALL_TIMEOUT;
use super::checkpoint::{self, Data};
use super::claims::Claims;
use super::drivers::{Drivers, Plugin};
use super::metrics::DraMetrics;
use super::pod_claims::{has_claims, references, requests};
use super::wiping::Wiping;
use crate::api::objects::WakePod;
use crate::api::printable;
use crate::config::KubeletConfig;
use crate::plugins::calls::within;
use crate::plugins::sockets::PluginSockets;
use crate::pods::{namespace, uid};
use crate::saving::{Checkpointed, Saver};

/// Characters of a driver's text in an event.
const TEXT_MAX: usize = 1_024;

/// Drivers of a node, and the claims that they have prepared. Clones are of the same.
#[derive(Clone)]
pub(crate) struct Dra(Arc<Shared>);

impl std::ops::Deref for Dra {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl std::fmt::Debug for Dra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dra").finish_non_exhaustive()
    }
}

/// State that clones of [`Dra`] share.
pub(crate) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) client: Client,
    pub(super) config: Arc<KubeletConfig>,
    pub(super) sockets: Arc<dyn PluginSockets>,
    pub(super) drivers: Drivers,
    pub(super) wiping: Wiping,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) saver: Saver<State>,
    pub(super) metrics: DraMetrics,
    /// Set once all pods that use claims are known.
    pub(super) settled: Watched<bool>,
    wake: OnceLock<WakePod>,
}

/// Everything that changes, under one lock.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) claims: Claims,
    /// Pods whose claims are taken back, which is not on the disk yet.
    pub(super) unsaved: BTreeSet<String>,
    /// Pods that wait for a driver, by its name.
    waiting: BTreeMap<String, BTreeSet<String>>,
}

impl Checkpointed for State {
    type Data = Data;

    const FILE: &'static str = checkpoint::FILE;

    fn generation(&self) -> u64 {
        self.claims.generation
    }

    fn data(&self) -> Data {
        Data::new(self.claims.iter())
    }

    fn store(data: Data, folder: &Path) -> io::Result<()> {
        data.store(folder)
    }
}

impl Dra {
    /// No driver and no claim yet.
    pub(crate) fn new(
        runtime: &Runtime,
        client: &Client,
        config: &Arc<KubeletConfig>,
        sockets: &Arc<dyn PluginSockets>,
    ) -> Self {
        let state = Arc::<Mutex<State>>::default();
        Self(Arc::new(Shared {
            runtime: runtime.clone(),
            client: client.clone(),
            config: config.clone(),
            sockets: sockets.clone(),
            drivers: Drivers::default(),
            wiping: Wiping::default(),
            saver: Saver::new(runtime.clone(), config.data_dir.clone(), Arc::clone(&state)),
            metrics: DraMetrics::new(runtime, &state),
            state,
            settled: Watched::default(),
            wake: OnceLock::new(),
        }))
    }

    /// Says whom to wake when a driver comes. Once, during assembly.
    pub(crate) fn on_change(&self, wake: WakePod) {
        let _ = self.wake.set(wake);
    }

    /// Goes on with the claims that the agent before this one has written down. Without them the node goes on, too: claims of
    /// pods that run are prepared again.
    pub(crate) async fn load(&self) {
        let folder = self.config.data_dir.clone();
        let loaded = self.runtime.blocking(move || Data::load(&folder)).await;
        match loaded.map_err(io::Error::other).flatten() {
            Ok(None) => {}
            Ok(Some(data)) => {
                let mut state = self.state.lock();
                data.claims().for_each(|claim| state.claims.found(claim));
            }
            Err(error) => tracing::error!(%error, "prepared ResourceClaims not read"),
        }
    }

    /// All pods that use claims are known.
    pub(crate) fn settle(&self) {
        if !self.settled.get() {
            self.settled.replace(true);
        }
    }

    /// A plugin of a driver has come or gone.
    pub(super) fn driver_changed(&self, driver: &str) {
        self.plan_wiping(driver);
        if self.drivers.get(driver).is_err() {
            return;
        }
        let waiting = self.state.lock().waiting.remove(driver).unwrap_or_default();
        if let Some(wake) = self.wake.get() {
            waiting.iter().for_each(|pod| wake(pod));
        }
    }

    /// Returns the plugin of a driver; the pod waits for one where there is none.
    pub(super) fn driver_for(&self, driver: &str, pod: &str) -> Result<Arc<Plugin>, String> {
        // Before the look: a plugin that comes meanwhile wakes the pod.
        let mut state = self.state.lock();
        let waiting = state.waiting.entry(driver.to_owned()).or_default();
        waiting.insert(pod.to_owned());
        drop(state);
        let found = self.drivers.get(driver);
        if found.is_ok() {
            self.waits_no_more(driver, pod);
        }
        found
    }

    fn waits_no_more(&self, driver: &str, pod: &str) {
        let mut state = self.state.lock();
        if let Some(pods) = state.waiting.get_mut(driver) {
            pods.remove(pod);
        }
        state.waiting.retain(|_, pods| !pods.is_empty());
    }

    /// A pod has gone.
    pub(crate) fn forget_pod(&self, pod: &str) {
        let mut state = self.state.lock();
        state.unsaved.remove(pod);
        state.waiting.retain(|_, pods| {
            pods.remove(pod);
            !pods.is_empty()
        });
    }

    /// Reports whether a pod has claims that are not written down with the answers of all their drivers, as after a damaged
    /// checkpoint.
    pub(crate) fn has_unknown(&self, pod: &Pod) -> bool {
        if !has_claims(pod) {
            return false;
        }
        let Ok(references) = references(pod) else {
            return true;
        };
        let state = self.state.lock();
        let mut keys = references
            .into_iter()
            .map(|own| (namespace(pod).to_owned(), own.name));
        !keys.all(|key| state.claims.has_devices(uid(pod), &key))
    }

    /// Returns the names of a container's devices in the Container Device Interface. Words are upstream's.
    pub(crate) fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, String> {
        let mut ids: Vec<String> = Vec::new();
        let mut known = BTreeSet::new();
        let requests = requests(pod, container)?;
        let state = self.state.lock();
        for (name, requests) in requests {
            let key = (namespace(pod).to_owned(), name);
            let Some(claim) = state.claims.get(&key) else {
                return Err(format!(
                    "internal error: unable to get claim info for ResourceClaim {} in namespace {}",
                    key.1, key.0
                ));
            };
            if let Some(driver) = claim.unanswered() {
                return Err(format!(
                    "ResourceClaim {} in namespace {} is not prepared by DRA driver {driver}",
                    key.1, key.0
                ));
            }
            for id in requests.iter().flat_map(|request| claim.cdi_ids(request)) {
                if known.insert(id.clone()) {
                    ids.push(id.clone());
                }
            }
        }
        Ok(ids)
    }

    /// The outcome of an operation on all claims of a pod, with its duration.
    pub(super) async fn measured(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let began = self.runtime.monotonic();
        let outcome = work.await;
        let seconds = (self.runtime.monotonic() - began).as_secs_f64();
        let failed = if outcome.is_err() { "true" } else { "false" };
        self.metrics.operations.of(&[operation, failed]).observe(seconds);
        outcome
    }

    /// The answer of a driver to a call, or that it took too long.
    pub(super) async fn call<T, F>(
        &self,
        plugin: &Plugin,
        method: &'static str,
        call: impl FnOnce(Transport) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let began = self.runtime.monotonic();
        let work = async {
            let transport = match plugin.live() {
                Some(live) => live,
                None => self.sockets.connect(&plugin.endpoint).await?,
            };
            call(transport).await
        };
        let outcome = within(&self.runtime, CALL_TIMEOUT, work).await;
        let seconds = (self.runtime.monotonic() - began).as_secs_f64();
        let code = code_name(outcome.as_ref().err().map_or(Code::Ok, Status::code));
        let calls = self.metrics.calls.of(&[&plugin.driver, method, &code]);
        calls.observe(seconds);
        outcome
    }
}

/// The beginning of a driver's text.
pub(super) fn short(text: &str) -> String {
    let beginning: String = text.chars().take(TEXT_MAX).collect();
    printable(&beginning).into_owned()
}

/// The text of a failed call.
pub(super) fn call_text(status: &Status) -> String {
    short(&node_plugin_api::calls::rpc_text(status))
}
