//! ClusterTrustBundles of the cluster, for the volumes of this node's pods.
//!
//! All bundles are followed from the first time a pod requests anchors, as upstream's kubelet does (`pkg/kubelet/clustertrustbundle`):
//! a bundle is a cluster's, and pods select them by label. [`store`] keeps their anchors within a bound and answers what a volume
//! wants; a change wakes the pods whose volumes may show it.
//!
//! Never: a volume that shows a part of what it selects. Where not all of it is kept, the volume fails and says so.

mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use kube::Client;
use machinery_client::{ListWatch, TypedChange, follow};
use machinery_runtime::{Runtime, Watched};
use node_volume::{TrustAnchors, VolumeError};
use parking_lot::Mutex;

use crate::api;
use crate::api::objects::WakePod;
use store::{Changed, Store};

/// Longest wait of a pod for the first list of bundles.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// State of the first list: not answered, failed so far, or known.
type Listed = Option<Result<(), String>>;

/// Trust anchors as the node knows them.
pub(crate) struct TrustBundles {
    runtime: Runtime,
    client: Client,
    shared: Arc<Shared>,
    begun: OnceLock<()>,
}

struct Shared {
    store: Mutex<Store>,
    listed: Watched<Listed>,
    /// Selections of each pod, by uid.
    users: Mutex<HashMap<String, Vec<TrustAnchors>>>,
    wake: OnceLock<WakePod>,
}

impl std::fmt::Debug for TrustBundles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrustBundles").finish_non_exhaustive()
    }
}

impl TrustBundles {
    /// Nothing is followed yet.
    pub(crate) fn new(runtime: Runtime, client: Client) -> Self {
        let shared = Shared {
            store: Mutex::new(Store::new(runtime.random_u64())),
            listed: Watched::new(None),
            users: Mutex::default(),
            wake: OnceLock::new(),
        };
        Self {
            runtime,
            client,
            shared: Arc::new(shared),
            begun: OnceLock::new(),
        }
    }

    /// Says whom to wake on a change. Once, during assembly.
    pub(crate) fn on_change(&self, wake: WakePod) {
        let _ = self.shared.wake.set(wake);
    }

    /// The pod is gone: no change wakes it.
    pub(crate) fn forget_pod(&self, uid: &str) {
        self.shared.users.lock().remove(uid);
    }

    /// Anchors for a volume of a pod, as PEM: each once, in an order that stays while the agent runs.
    ///
    /// # Errors
    /// What the volume selects is not there and not optional, or the API server does not answer.
    pub(crate) async fn anchors(&self, uid: &str, wanted: &TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
        self.shared.remember(uid, wanted);
        self.begun.get_or_init(|| self.begin());
        let listed = self.shared.listed.wait_for(Option::is_some);
        match self.runtime.timeout(FIRST_ANSWER_TIMEOUT, listed).await {
            Ok(Some(Err(why))) => Err(VolumeError::Source(format!(
                "while listing ClusterTrustBundles: {why}"
            ))),
            Ok(_) => self.shared.store.lock().anchors(wanted),
            Err(_) => Err(VolumeError::Source("timed out waiting for the API server".into())),
        }
    }

    fn begin(&self) {
        let (runtime, shared) = (self.runtime.clone(), Arc::clone(&self.shared));
        let client = api::client(&self.client, &runtime);
        let source = ListWatch::of::<ClusterTrustBundle>();
        let run = async move {
            let apply = |change| shared.take_in(change);
            let watch = || follow(&client, source.clone(), &apply);
            runtime.again_after_panics("trust bundle watch", watch).await;
        };
        self.runtime.spawn("trust bundle watch", run).detach();
    }
}

impl Shared {
    fn remember(&self, uid: &str, wanted: &TrustAnchors) {
        let mut users = self.users.lock();
        let own = users.entry(uid.to_owned()).or_default();
        if !own.contains(wanted) {
            own.push(wanted.clone());
        }
    }

    fn take_in(&self, change: TypedChange<ClusterTrustBundle>) {
        let changed = {
            let mut store = self.store.lock();
            match change {
                TypedChange::All { objects, unread } => {
                    let unread = unread.iter().map(|header| &*header.key.name).collect();
                    store.replace(objects, &unread)
                }
                TypedChange::Set(bundle) => store.set(bundle),
                TypedChange::Gone(header) => store.remove(&header.key.name),
                TypedChange::Unread(_) => return,
                TypedChange::Failed(why) => {
                    drop(store);
                    // What was known stays known; only a first answer may be a failure.
                    self.listed.change(|listed| {
                        let waiting = !matches!(listed, Some(Ok(())));
                        if waiting {
                            *listed = Some(Err(why));
                        }
                        waiting
                    });
                    return;
                }
            }
        };
        let first = !matches!(self.listed.replace(Some(Ok(()))), Some(Ok(())));
        let Some(wake) = self.wake.get() else { return };
        let concerns = |wanted: &TrustAnchors| first || changed.iter().any(|own| own.concerns(wanted));
        let woken: Vec<String> = {
            let users = self.users.lock();
            let concerned = users.iter().filter(|(_, all)| all.iter().any(concerns));
            concerned.map(|(uid, _)| uid.clone()).collect()
        };
        woken.iter().for_each(|uid| wake(uid));
    }
}

impl Changed {
    /// Reports whether a selection may see the bundle.
    fn concerns(&self, wanted: &TrustAnchors) -> bool {
        match wanted {
            TrustAnchors::Named { name, .. } => *name == self.name,
            TrustAnchors::Signed { signer, .. } => *signer == self.signer,
        }
    }
}
