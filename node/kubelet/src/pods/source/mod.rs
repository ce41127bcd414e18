//! The pods bound to this node, one worker each, and what wakes them.

mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use machinery_client::{ListWatch, TypedChange, follow};
use machinery_runtime::{CancellationToken, Watched};
use node_cri::events::{TaskEvent, subscribe};
use node_cri::v1;
use parking_lot::Mutex;

use super::disruption::Disruption;
use super::observed::label;
use super::resize::allocation::ResourceRequest;
use super::saved::{SavedPod, load_all};
use super::worker::{Inbox, PodWorker, WorkerContext, has_begun};
use super::{is_mirror, is_static, uid};
use crate::api;
use crate::containers::{files, log_links};
use crate::metrics::pods::PodMetrics;

/// The safety net under the event stream.
const RELIST_AFTER: Duration = Duration::from_secs(60);
/// Time after which the agent continues with saved pods if the API server has not listed any.
const SAVED_AFTER: Duration = Duration::from_secs(5);
/// Ends remembered until a worker has seen them; those of others' containers are never seen.
const EXITED_MAX: usize = 4096;
/// Pause between two tries to reach containerd.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);
/// A subscription has arrived by then; containerd does not say so before its first event.
const SUBSCRIBED_AFTER: Duration = Duration::from_secs(2);

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
    /// Set once the files of static pods were read.
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
                *listed = true;
                let (mirrors, pods): (Vec<Pod>, Vec<Pod>) = objects.into_iter().partition(is_mirror);
                let mut present: BTreeSet<String> = unread.iter().map(|own| own.uid.0.clone()).collect();
                let undecodable = present.clone();
                self.context.mirrors.replace(mirrors.clone(), &present);
                mirrors.iter().for_each(|mirror| self.wake_static(mirror));
                present.extend(pods.iter().map(|pod| uid(pod).to_string()));
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

    /// Takes in a pod of the API server, or what it has of a static one.
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

    /// The files of static pods were read: what belongs to no pod may go.
    pub(crate) fn static_pods_known(&self) {
        self.static_known.replace(true);
    }

    /// Reports whether all pods were received from the API server and all files of static pods were read.
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
            inbox.gone.store(true, Ordering::Release);
            inbox.ending.cancel();
            inbox.wake.notify_one();
        }
    }

    /// Wakes workers at the events of containerd, for ever.
    pub(crate) async fn follow_runtime(self: Arc<Self>) {
        let runtime = self.context.runtime.clone();
        loop {
            let mut events = subscribe(&self.context.control.cri);
            let waking = self.wake_until_subscribed();
            tokio::pin!(waking);
            loop {
                tokio::select! {
                    biased;
                    event = events.next_event() => match event {
                        Some(event) => self.handle_event(&event),
                        None => break,
                    },
                    () = &mut waking => {}
                }
            }
            runtime.sleep(RECONNECT_AFTER).await;
        }
    }

    /// Wakes all workers twice, for events before the subscription are lost: when the runtime answers, and when the
    /// subscription must be in force.
    async fn wake_until_subscribed(&self) {
        let version = v1::VersionRequest { version: "v1".into() };
        if self.context.control.cri.version(version).await.is_ok() {
            self.wake_all();
            self.context.runtime.sleep(SUBSCRIBED_AFTER).await;
            self.wake_all();
        }
        std::future::pending().await
    }

    fn handle_event(&self, event: &TaskEvent) {
        if let TaskEvent::Exited { container_id } = event {
            self.remember_exit(container_id);
            self.context.followed.ended(container_id);
        }
        let owner = self.context.owners.lock().get(event.container_id()).cloned();
        owner.iter().for_each(|uid| self.wake(uid));
    }

    fn remember_exit(&self, id: &str) {
        let mut exited = self.context.exited.lock();
        if exited.len() >= EXITED_MAX {
            exited.clear();
        }
        exited.insert(id.to_string());
    }

    /// Relists the runtime every [`RELIST_AFTER`], for ever: wakes workers whose containers changed without an event, and,
    /// once all pods are known, removes what belongs to none.
    pub(crate) async fn relist(self: Arc<Self>) {
        let runtime = self.context.runtime.clone();
        let mut seen = BTreeMap::new();
        let (mut all_have_workers, mut last) = (false, None);
        loop {
            let synced = self.is_synced();
            let mut pause = RELIST_AFTER;
            let began = runtime.monotonic();
            match self.states().await {
                Ok(states) => {
                    let interval = last.replace(began).map(|last| began.saturating_sub(last));
                    let took = runtime.monotonic().saturating_sub(began);
                    PodMetrics::of(&runtime).relisted(took, interval, runtime.now().as_second());
                    let changed = states
                        .iter()
                        .filter(|(uid, state)| seen.get(*uid) != Some(*state));
                    changed.for_each(|(uid, _)| self.wake_to_list(uid));
                    if synced {
                        self.remove_orphaned_pods(states.keys().cloned().collect()).await;
                        // Whatever has something on this node has a worker now, but for what cannot be decoded.
                        self.context.devices.settle(|uid| self.is_known(uid));
                        self.context.dra.settle();
                        // Since the last time each of them has looked at its pod.
                        if std::mem::replace(&mut all_have_workers, true) {
                            self.context.control.host_ports.settle();
                        }
                    }
                    seen = states;
                }
                Err(error) => {
                    tracing::debug!(error = %error, "runtime not listed");
                    if !all_have_workers {
                        // New pods wait for what deleted ones have.
                        pause = RECONNECT_AFTER;
                    }
                }
            }
            tokio::select! {
                biased;
                () = self.until_synced(), if !synced => {}
                () = runtime.sleep(pause) => {}
            }
        }
    }

    /// States of sandboxes and containers by pod uid, in a form that can be compared.
    async fn states(&self) -> Result<BTreeMap<String, Vec<(String, i32)>>, node_cri::CriError> {
        let cri = &self.context.control.cri;
        let sandboxes = cri
            .list_pod_sandbox(v1::ListPodSandboxRequest { filter: None })
            .await?
            .items;
        let containers = cri
            .list_containers(v1::ListContainersRequest { filter: None })
            .await?
            .containers;
        let mut states: BTreeMap<String, Vec<(String, i32)>> = BTreeMap::new();
        let sandboxes = sandboxes
            .into_iter()
            .map(|sandbox| (sandbox.labels, sandbox.id, sandbox.state));
        let containers = containers
            .into_iter()
            .map(|found| (found.labels, found.id, found.state));
        for (labels, id, state) in sandboxes.chain(containers) {
            if let Some(uid) = labels.get(label::POD_UID) {
                states.entry(uid.clone()).or_default().push((id, state));
            }
        }
        states.values_mut().for_each(|list| list.sort());
        Ok(states)
    }

    /// Removes sandboxes and folders of pods that the API server does not have.
    async fn remove_orphaned_pods(self: &Arc<Self>, in_runtime: BTreeSet<String>) {
        let config = self.context.control.config.clone();
        let on_disk = self.context.runtime.blocking(move || {
            log_links::remove_dangling(&config);
            files::uids_on_disk(&config)
        });
        let on_disk = on_disk.await.unwrap_or_default();
        let unknown = in_runtime.iter().filter(|uid| !self.is_known(uid));
        unknown.for_each(|_| PodMetrics::of(&self.context.runtime).orphan_found());
        let all: BTreeSet<String> = in_runtime.into_iter().chain(on_disk).collect();
        for uid in all {
            if self.is_known(&uid) {
                continue;
            }
            tracing::info!(%uid, "removing the remains of a deleted pod");
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.clone());
            self.set(pod);
            self.gone(&uid);
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
