//! Certificates of pods (`podCertificate` in projected volumes, KEP-4317): a key of the node's making, a PodCertificateRequest for it,
//! and the chain that a signer puts into its status.
//!
//! Each projection of each pod has a task ([`issuing`]) that begins when the pod's volumes are first set up: it makes the key ([`key`]),
//! creates the request, waits for the signer ([`requests`] follows those of this node), and does so again when the certificate is to be
//! refreshed. [`state`] has what a projection has come to. Nothing is kept but the files in memory that pods see: an agent that starts
//! again requests again, as upstream's does.
//!
//! Never: a key in a log, in an event, or in an error.

mod issuing;
mod key;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodCertificateProjection};
use kube::Client;
use machinery_runtime::{Runtime, TaskHandle, Watched};
use node_volume::{Credentials, ProjectionPlace, VolumeError};
use parking_lot::Mutex;

use crate::api::events::NodeEvents;
use crate::api::objects::WakePod;
use crate::pods::{spec, uid};
use issuing::Issuing;
use requests::Requests;
use state::State;

/// A pod that is set up for the first time waits so long for its certificates, before the failure is an event: most signers answer at once.
const FIRST_ISSUANCE_WAIT: Duration = Duration::from_secs(2);

/// Certificates of this node's pods.
pub(crate) struct PodCertificates {
    context: Arc<Context>,
    projections: Mutex<HashMap<(String, ProjectionPlace), Projection>>,
}

/// Means that all tasks share.
struct Context {
    runtime: Runtime,
    client: Client,
    events: NodeEvents,
    node_name: String,
    node: Arc<Mutex<Arc<Node>>>,
    requests: Requests,
    wake: OnceLock<WakePod>,
}

struct Projection {
    signer: String,
    state: Arc<Watched<State>>,
    /// On the runtime's monotonic clock.
    began: Duration,
    task: TaskHandle<()>,
}

impl std::fmt::Debug for PodCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodCertificates").finish_non_exhaustive()
    }
}

impl PodCertificates {
    /// Nothing is requested yet. The node is the newest version of its object.
    pub(crate) fn new(
        runtime: Runtime,
        client: Client,
        events: NodeEvents,
        node_name: &str,
        node: Arc<Mutex<Arc<Node>>>,
    ) -> Self {
        let requests = Requests::new(runtime.clone(), client.clone(), node_name);
        let context = Context {
            runtime,
            client,
            events,
            node_name: node_name.to_owned(),
            node,
            requests,
            wake: OnceLock::new(),
        };
        Self {
            context: Arc::new(context),
            projections: Mutex::default(),
        }
    }

    /// Says whom to wake when a certificate is there. Once, during assembly.
    pub(crate) fn on_change(&self, wake: WakePod) {
        let _ = self.context.wake.set(wake);
    }

    /// The pod is gone: nothing more is requested for it.
    pub(crate) fn forget_pod(&self, uid: &str) {
        self.projections.lock().retain(|(own, _), projection| {
            if own == uid {
                projection.task.abort();
            }
            own != uid
        });
    }

    /// The key and certificates of one projection. Those of all others of the pod are requested, too, where they are not yet.
    ///
    /// # Errors
    /// They are not issued yet, or never will be.
    pub(crate) async fn credentials(
        &self,
        pod: &Pod,
        place: &ProjectionPlace,
    ) -> Result<Arc<Credentials>, VolumeError> {
        self.begin(pod);
        let key = (uid(pod).to_owned(), place.clone());
        let found = {
            let projections = self.projections.lock();
            projections
                .get(&key)
                .map(|own| (Arc::clone(&own.state), own.began))
        };
        let Some((state, began)) = found else {
            let why = "the pod has no such podCertificate projection";
            return Err(VolumeError::Invalid(why.into()));
        };
        let left = (began + FIRST_ISSUANCE_WAIT).saturating_sub(self.context.runtime.monotonic());
        let decided = state.wait_for(|state| !state.is_waiting());
        let now = match self.context.runtime.timeout(left, decided).await {
            Ok(decided) => decided,
            Err(_) => state.get(),
        };
        now.credentials().map_err(VolumeError::Source)
    }

    /// Begins what has not begun of a pod.
    fn begin(&self, pod: &Pod) {
        for (place, source) in projections(pod) {
            let key = (uid(pod).to_owned(), place);
            let mut all = self.projections.lock();
            if all.contains_key(&key) {
                continue;
            }
            let state = Arc::new(Watched::new(State::Waiting(None)));
            let issuing = Issuing::new(Arc::clone(&self.context), pod, source, Arc::clone(&state));
            let task = self.context.runtime.spawn("pod certificate", issuing.run());
            let projection = Projection {
                signer: source.signer_name.clone(),
                state,
                began: self.context.runtime.monotonic(),
                task,
            };
            all.insert(key, projection);
        }
    }

    /// Projections by signer and state, under upstream's names of the states.
    pub(crate) fn states(&self) -> BTreeMap<(String, &'static str), usize> {
        let now = self.context.runtime.now();
        let mut counts = BTreeMap::new();
        for projection in self.projections.lock().values() {
            let state = projection.state.get().name(now);
            *counts.entry((projection.signer.clone(), state)).or_default() += 1;
        }
        counts
    }
}

impl Drop for PodCertificates {
    fn drop(&mut self) {
        self.projections
            .get_mut()
            .values()
            .for_each(|own| own.task.abort());
    }
}

/// The projections of a pod with their places.
fn projections(pod: &Pod) -> impl Iterator<Item = (ProjectionPlace, &PodCertificateProjection)> {
    let volumes = spec(pod).volumes.iter().flatten();
    volumes.flat_map(|volume| {
        let sources = volume
            .projected
            .iter()
            .flat_map(|own| own.sources.iter().flatten());
        sources.enumerate().filter_map(|(index, part)| {
            let place = ProjectionPlace {
                volume: volume.name.clone(),
                source: index,
            };
            Some((place, part.pod_certificate.as_ref()?))
        })
    })
}
