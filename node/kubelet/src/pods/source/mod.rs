//! The pods bound to this node, one worker each, and what wakes them: the API server, static pods, saved ones, and the
//! [`runtime`].

mod runtime;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use machinery_client::{ListWatch, TypedChange, follow};
use machinery_runtime::{CancellationToken, Watched};
use parking_lot::Mutex;

use super::disruption::Disruption;
use super::resize::allocation::ResourceRequest;
use super::saved::{SavedPod, load_all};
use super::worker::{Inbox, PodWorker, WorkerContext, has_begun};
use super::{is_mirror, is_static, uid};
use crate::api;

/// Time after which the agent continues with saved pods if the API server has not listed any.
const SAVED_AFTER: Duration = Duration::from_secs(5);

/// A pod and what its worker does.
#[derive(Debug, Clone)]
pub(crate) struct PodStage {
    pub(crate) pod: Arc<Pod>,
    /// Upstream's word: `sync`, `terminating` or `terminated`.
    pub(crate) lifecycle: &'static str,
    /// Its object is gone.
    pub(crate) is_orphaned: bool,
}

/// The workers by uid.
#[derive(Debug)]
pub(crate) struct Pods {
    context: Arc<WorkerContext>,
    inboxes: Mutex<BTreeMap<String, Arc<Inbox>>>,
    /// Set once all pods were received from the API server.
    synced: Watched<bool>,
    /// The same, held while all pods are taken in: what it says replaces what was saved, never the other way round.
    listed: Mutex<bool>,
    /// Set once all sources of static pods were read.
    static_known: Watched<bool>,
    /// Uids of pods that the API server has and that cannot be decoded.
    unread: Mutex<BTreeSet<String>>,
    /// Pods that an earlier agent saved, for the first list of the API server.
    saved: Mutex<Vec<SavedPod>>,
}

impl Pods {
    /// No worker yet.
    pub(crate) fn new(context: Arc<WorkerContext>) -> Arc<Self> {
        let pods = Self {
            context,
            inboxes: Mutex::default(),
            synced: Watched::new(false),
            listed: Mutex::new(false),
            static_known: Watched::new(false),
            unread: Mutex::default(),
            saved: Mutex::default(),
        };
        Arc::new(pods)
    }

    /// The pods as the API server has them.
    pub(crate) fn list(&self) -> Vec<Arc<Pod>> {
        self.inboxes
            .lock()
            .values()
            .map(|inbox| inbox.pod.lock().clone())
            .collect()
    }

    /// Pods that have workers, each with what its worker does.
    pub(crate) fn stages(&self) -> Vec<PodStage> {
        let inboxes: Vec<_> = self.inboxes.lock().values().cloned().collect();
        let stage = |inbox: Arc<Inbox>| {
            let status = inbox.status.lock().clone();
            let phase = status.as_ref().and_then(|status| status.phase.as_deref());
            let pod = inbox.pod.lock().clone();
            PodStage {
                lifecycle: match phase {
                    Some("Succeeded" | "Failed") => "terminated",
                    _ if inbox.ending.is_cancelled() => "terminating",
                    _ => "sync",
                },
                is_orphaned: inbox.gone.load(Ordering::Acquire),
                pod,
            }
        };
        inboxes.into_iter().map(stage).collect()
    }

    /// The pod of this name.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let fits = |pod: &Arc<Pod>| super::name(pod) == name && super::namespace(pod) == namespace;
        self.list().into_iter().find(fits)
    }

    /// Status of a pod: the last one of its worker, or of the API server if the worker has none yet.
    pub(crate) fn status(&self, pod: &Pod) -> Arc<PodStatus> {
        let inboxes = self.inboxes.lock();
        let reported = inboxes
            .get(uid(pod))
            .and_then(|inbox| inbox.status.lock().clone());
        drop(inboxes);
        reported.unwrap_or_else(|| Arc::new(pod.status.clone().unwrap_or_default()))
    }

    /// Wakes one pod's worker.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(inbox) = self.inboxes.lock().get(uid) {
            inbox.wake.notify_one();
        }
    }

    /// Ends one pod without a request of the API; false where it is ending so already, or unknown.
    pub(crate) fn disrupt(&self, uid: &str, disruption: Disruption) -> bool {
        let inboxes = self.inboxes.lock();
        let Some(inbox) = inboxes.get(uid) else {
            return false;
        };
        let mut known = inbox.disruption.lock();
        if known.is_some() {
            return false;
        }
        *known = Some(disruption);
        inbox.ending.cancel();
        inbox.wake.notify_one();
        true
    }

    /// Ends one pod as the machine goes down: in no more time than that, also where it is ending already.
    pub(crate) fn shut_down(&self, uid: &str, disruption: Disruption) {
        let Some(inbox) = self.inboxes.lock().get(uid).cloned() else {
            return;
        };
        let mut known = inbox.disruption.lock();
        let earlier = known.as_ref().and_then(|earlier| earlier.grace_seconds);
        let grace_seconds = earlier.into_iter().chain(disruption.grace_seconds).min();
        known.get_or_insert(disruption).grace_seconds = grace_seconds;
        drop(known);
        inbox.ending.cancel();
        inbox.wake.notify_one();
    }

    /// Reports whether nothing of a pod runs any more, and its volumes are taken down.
    pub(crate) fn is_taken_down(&self, uid: &str) -> bool {
        let inbox = self.inboxes.lock().get(uid).cloned();
        inbox.is_none_or(|inbox| inbox.taken_down.get())
    }

    /// Waits until it is so.
    pub(crate) async fn taken_down(&self, uid: &str) {
        let inbox = self.inboxes.lock().get(uid).cloned();
        if let Some(inbox) = inbox {
            inbox.taken_down.wait_for(|is_so| *is_so).await;
        }
    }

    /// Reports whether a pod is ending so.
    pub(crate) fn is_disrupted(&self, uid: &str) -> bool {
        let inboxes = self.inboxes.lock();
        inboxes
            .get(uid)
            .is_some_and(|inbox| inbox.disruption.lock().is_some())
    }

    /// Reports whether the node has admitted a pod: its worker has a status of it, or an agent before this one had.
    pub(crate) fn is_admitted(&self, uid: &str) -> bool {
        let inbox = self.inboxes.lock().get(uid).cloned();
        inbox.is_some_and(|inbox| inbox.status.lock().is_some() || has_begun(&inbox.pod.lock()))
    }

    /// Reports whether nothing of a pod runs any more, as its worker has it.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        let Some(inbox) = self.inboxes.lock().get(uid).cloned() else {
            return true;
        };
        let status = inbox.status.lock().clone();
        let phase = status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// Wakes one pod's worker to list what the runtime has of its pod.
    pub(crate) fn wake_to_list(&self, uid: &str) {
        if let Some(inbox) = self.inboxes.lock().get(uid) {
            inbox.unlisted.store(true, Ordering::Release);
            inbox.wake.notify_one();
        }
    }

    fn wake_all(&self) {
        for inbox in self.inboxes.lock().values() {
            inbox.unlisted.store(true, Ordering::Release);
            inbox.wake.notify_one();
        }
    }

    /// Follows the pods bound to this node, for ever. None is admitted to a node that is not known.
    pub(crate) async fn follow_api(self: Arc<Self>, node_name: String) {
        // Admission needs allocatable amounts, labels and taints of the node.
        self.context.node_known.wait_for(|known| *known).await;
        *self.saved.lock() = self.load_saved().await;
        let client = api::client(&self.context.client, &self.context.runtime);
        let source = ListWatch::of::<Pod>().fields(format!("spec.nodeName={node_name}"));
        follow(&client, source, |change| self.apply_change(change)).await;
    }

    fn apply_change(self: &Arc<Self>, change: TypedChange<Pod>) {
        match change {
            TypedChange::All { objects, unread } => {
                let mut listed = self.listed.lock();
                // Held to the end: `take_up` would begin saved pods that this list no longer has.
                *listed = true;
                let (mirrors, pods): (Vec<Pod>, Vec<Pod>) = objects.into_iter().partition(is_mirror);
                let mut present: BTreeSet<String> = unread.iter().map(|own| own.uid.0.clone()).collect();
                let undecodable = present.clone();
                self.context.mirrors.replace(mirrors.clone(), &present);
                mirrors.iter().for_each(|mirror| self.wake_static(mirror));
                present.extend(pods.iter().map(|pod| uid(pod).to_string()));
                // Before any worker begins: a new pod's would take the resources of one that runs.
                self.hold_begun(&pods);
                self.begin_unread(&unread);
                pods.into_iter().for_each(|pod| self.set_of_the_api(pod));
                unread.iter().for_each(|header| self.set_unread(header));
                // Once what can be decoded again has a worker: see `is_known`.
                self.replace_unread(undecodable);
                let known = self.known_of_the_api();
                known
                    .iter()
                    .filter(|uid| !present.contains(*uid))
                    .for_each(|uid| self.gone(uid));
                self.synced.replace(true);
            }
            TypedChange::Set(pod) => {
                let id = uid(&pod).to_owned();
                self.set_any(pod);
                self.unread.lock().remove(&id);
            }
            TypedChange::Unread(header) => self.set_unread(&header),
            TypedChange::Gone(header) => {
                self.unread.lock().remove(&header.uid.0);
                self.context.mirrors.remove(&header);
                self.gone(&header.uid.0);
            }
            TypedChange::Failed(reason) => tracing::debug!(reason, "watching pods failed"),
        }
    }

    /// Wakes the worker of the static pod that a mirror shows: it has a status to report.
    fn wake_static(&self, mirror: &Pod) {
        let found = self.find(super::namespace(mirror), super::name(mirror));
        if let Some(pod) = found.filter(|pod| is_static(pod)) {
            self.wake(uid(&pod));
        }
    }

    /// The uids of pods that are not from files.
    fn known_of_the_api(&self) -> Vec<String> {
        let inboxes = self.inboxes.lock();
        let of_the_api = inboxes.iter().filter(|(_, inbox)| !is_static(&inbox.pod.lock()));
        of_the_api.map(|(uid, _)| uid.clone()).collect()
    }

    /// Applies a pod of the API server, or what it has of a static one.
    fn set_any(self: &Arc<Self>, pod: Pod) {
        if is_mirror(&pod) {
            self.context.mirrors.set(pod.clone());
            self.wake_static(&pod);
        } else {
            self.set_of_the_api(pod);
        }
    }

    fn set_of_the_api(self: &Arc<Self>, mut pod: Pod) {
        super::mark_as_of_the_api(&mut pod);
        self.set(pod);
    }

    /// Begins a static pod, or changes one.
    pub(crate) fn set_static(self: &Arc<Self>, pod: Pod) {
        self.set(pod);
    }

    /// All sources of static pods were read: what belongs to no pod may go.
    pub(crate) fn static_pods_known(&self) {
        self.static_known.replace(true);
    }

    /// Reports whether all pods were received from the API server.
    pub(crate) fn is_listed(&self) -> bool {
        self.synced.get()
    }

    /// Reports whether all pods were received from the API server and all sources of static pods were read.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.get() && self.static_known.get()
    }

    async fn until_synced(&self) {
        self.synced.wait_for(|known| *known).await;
        self.static_known.wait_for(|known| *known).await;
    }

    /// Continues with the pods that an earlier agent saved if the API server has not listed pods after [`SAVED_AFTER`]:
    /// restarts their containers and runs their probes. Returns once that has begun.
    pub(crate) async fn go_on_with_saved(self: Arc<Self>) {
        let runtime = self.context.runtime.clone();
        let synced = self.synced.wait_for(|synced| *synced);
        if runtime.timeout(SAVED_AFTER, synced).await.is_ok() {
            return;
        }
        self.take_up(self.load_saved().await);
    }

    async fn load_saved(&self) -> Vec<SavedPod> {
        let config = self.context.control.config.clone();
        let saved = self.context.runtime.blocking(move || load_all(&config));
        saved.await.unwrap_or_default()
    }

    fn take_up(self: &Arc<Self>, saved: Vec<SavedPod>) {
        let listed = self.listed.lock();
        if *listed {
            return;
        }
        let pods = saved.len();
        tracing::info!(pods, "API server unreachable, continuing with the saved pods");
        self.begin_saved(saved);
    }

    /// Pods that have begun keep their place: none that is new takes it before their workers have looked.
    fn hold_begun<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) {
        let inboxes = self.inboxes.lock();
        let begun = pods
            .into_iter()
            .filter(|pod| has_begun(pod) && !is_to_end(pod) && !inboxes.contains_key(uid(pod)));
        begun.for_each(|pod| self.context.allocations.hold(uid(pod), ResourceRequest::of(pod)));
    }

    fn set(self: &Arc<Self>, pod: Pod) {
        let id = uid(&pod).to_string();
        let mut inboxes = self.inboxes.lock();
        let ends = is_to_end(&pod);
        if let Some(inbox) = inboxes.get(&id) {
            *inbox.pod.lock() = Arc::new(pod);
            if ends {
                inbox.ending.cancel();
            }
            inbox.wake.notify_one();
            return;
        }
        let inbox = Arc::new(Inbox {
            pod: Mutex::new(Arc::new(pod)),
            status: Mutex::default(),
            gone: AtomicBool::new(false),
            ending: CancellationToken::new(),
            wake: Arc::default(),
            unlisted: AtomicBool::new(false),
            disruption: Mutex::default(),
            taken_down: Watched::new(false),
        });
        if ends {
            inbox.ending.cancel();
        }
        inboxes.insert(id.clone(), inbox.clone());
        let pods = self.clone();
        let (context, runtime) = (self.context.clone(), self.context.runtime.clone());
        self.context.runtime.spawn("pod worker", async move {
            // One that panicked knows nothing of what it did: its successor looks at what runs, as after a start.
            let work = || PodWorker::new(context.clone(), inbox.clone()).run();
            runtime.again_after_panics("pod worker", work).await;
            pods.inboxes.lock().remove(&id);
        });
    }

    fn gone(&self, uid: &str) {
        if let Some(inbox) = self.inboxes.lock().get(uid) {
            // Before the cancellation, which drops the worker's round: the next one must see why.
            inbox.gone.store(true, Ordering::Release);
            inbox.ending.cancel();
            inbox.wake.notify_one();
        }
    }
}

/// Reports whether a pod of the API server has to end.
pub(super) fn is_to_end(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests;
