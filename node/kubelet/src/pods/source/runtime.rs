//! Wakers from the runtime: events of containerd, and the lists under them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use node_cri::events::{TaskEvent, subscribe};
use node_cri::v1;

use super::Pods;
use crate::containers::{files, log_links};
use crate::metrics::pods::PodMetrics;
use crate::pods::observed::label;

/// The safety net under the event stream.
const RELIST_AFTER: Duration = Duration::from_secs(60);
/// Ends remembered until a worker has seen them; those of others' containers are never seen.
const EXITED_MAX: usize = 4096;
/// Pause between two tries to reach containerd.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);
/// Deleted pods that have workers at once for what they left on the disk alone: pods that may write the folder of logs make any number
/// of folders there.
const REMAINS_MAX: usize = 256;
/// Time after which a subscription is in force; containerd confirms none before its first event.
const SUBSCRIBED_AFTER: Duration = Duration::from_secs(2);

impl Pods {
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
        // Cleared as a whole: a lost entry costs a worker one stale observation, and the relist finds it.
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
                    // Only those that changed: with hundreds of pods a round of each would cost the runtime
                    // thousands of calls a minute.
                    changed.for_each(|(uid, _)| self.wake_to_list(uid));
                    if synced {
                        self.remove_orphaned_pods(states.keys().cloned().collect()).await;
                        // Whatever has something on this node has a worker now, but for what cannot be decoded.
                        self.context.devices.settle(|uid| self.is_known(uid));
                        self.context.resource_managers.settle(|uid| self.is_known(uid));
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

    /// Number of pods that the API server has no more, and that have a worker until nothing is left of them.
    pub(super) fn gone_pods(&self) -> usize {
        let inboxes = self.inboxes.lock();
        let gone = inboxes
            .values()
            .filter(|inbox| inbox.gone.load(Ordering::Acquire));
        gone.count()
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
        let room = REMAINS_MAX.saturating_sub(self.gone_pods());
        for uid in remains(in_runtime, on_disk, |uid| self.is_known(uid), room) {
            tracing::info!(%uid, "removing the remains of a deleted pod");
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.clone());
            self.set(pod);
            self.gone(&uid);
        }
    }
}

/// Uids of pods that are not known: all in the runtime, and so many that are on the disk alone.
fn remains(
    in_runtime: BTreeSet<String>,
    on_disk: Vec<String>,
    is_known: impl Fn(&str) -> bool,
    room: usize,
) -> BTreeSet<String> {
    let mut remains = in_runtime;
    remains.retain(|uid| !is_known(uid));
    let most = remains.len() + room;
    for uid in on_disk {
        if remains.len() >= most {
            break;
        }
        if !is_known(&uid) {
            remains.insert(uid);
        }
    }
    remains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remains_on_the_disk_are_removed_so_many_at_once() {
        let uids = |uids: &[&str]| -> Vec<String> { uids.iter().map(|uid| (*uid).to_owned()).collect() };
        let in_runtime = BTreeSet::from_iter(uids(&["known", "r", "s"]));
        let on_disk = uids(&["z", "known", "r", "a", "b"]);
        let with = |room: usize| remains(in_runtime.clone(), on_disk.clone(), |uid| uid == "known", room);
        assert_eq!(Vec::from_iter(with(0)), ["r", "s"]);
        assert_eq!(Vec::from_iter(with(2)), ["a", "r", "s", "z"]);
        assert_eq!(with(9).len(), 5);
    }
}
