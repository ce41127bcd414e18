//! One pod's worker: observe, decide, act, report; then wait to be woken. [`reading`] observes, [`acting`] carries a plan
//! out, [`ending`] has how it ends, [`resizing`] how its resources change, [`reporting`] what is said of it, [`saving`]
//! what of it outlives the agent, [`progress`] how long it takes.

mod acting;
mod ending;
mod progress;
mod reading;
mod reporting;
mod resizing;
mod saving;

use acting::ActOutcome;
use progress::Progress;
pub(super) use reporting::has_begun;
use saving::Saved;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use machinery_runtime::{CancellationToken, Runtime, Watched};
use node_sys::blocking::BlockingLane;
use node_sys::mount::Mounter;
use node_volume::{ObjectSource, ThisNode, VolumeSet};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::backoff::BackOff;
use super::disruption::{Disruption, Failure};
use super::observed::{ContainerState, ObservedPod};
use super::plan::{Plan, Snapshot, plan};
use super::resize::Record;
use super::resize::allocation::NodeAllocations;
use super::resize::conditions::ResizeState;
use super::restarts::RoundStage;
use super::{full_name, full_name_with_uid, spec, uid};
use crate::api::events::{EventType, NodeEvents};
use crate::api::objects::{Objects, WakePod};
use crate::containers::control::ContainerControl;
use crate::containers::files;
use crate::containers::resources::pod_limits;
use crate::csi::Csi;
use crate::devices::manager::DeviceManager;
use crate::dra::Dra;
use crate::eviction::metrics::EvictionMetrics;
use crate::eviction::pod_storage::StorageLooks;
use crate::logs::following::FollowedLogs;
use crate::metrics::probes::ProbeMetrics;
use crate::node::pressure::Pressure;
use crate::probes::ProbeManager;
use crate::static_pods::mirrors::Mirrors;

/// After a failed step the pod is looked at again after this long, as upstream's.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Volumes that fail are tried less and less often: upstream's first and last pause (`exponentialbackoff`).
const VOLUME_RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));
/// After a failed write to the API server.
const RETRY_WRITE_AFTER: Duration = Duration::from_secs(1);
/// Volumes of objects are brought up to date at this interval even without an event.
const REFRESH_AFTER: Duration = Duration::from_secs(600);
/// Rounds without a pause; a pod that wants more is looked at again later.
const ROUNDS_MAX: usize = 32;
/// After giving up on a runtime whose bookkeeping lags behind its events it is looked at again after this long.
const LOOK_AFTER_CATCH_UP: Duration = Duration::from_secs(1);
/// Ended containers kept per name, for their logs and last state.
const ENDED_CONTAINERS_KEPT: usize = 2;

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
}

/// Next round of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Waits until woken, or until this time.
    Wait(Option<Timestamp>),
    /// Never: the pod is gone.
    Done,
}

impl Next {
    /// The earlier of two; what is done stays done.
    fn no_later_than(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wait(Some(one)), Self::Wait(Some(two))) => Self::Wait(Some(one.min(two))),
            (Self::Wait(None), other) => other,
            (this, _) => this,
        }
    }
}

/// One pod's worker.
pub(crate) struct PodWorker {
    context: Arc<WorkerContext>,
    inbox: Arc<Inbox>,
    uid: String,
    /// The pod's work on files: what is stuck in it delays no other pod.
    lane: BlockingLane,
    volumes: VolumeSet,
    objects: Arc<dyn ObjectSource>,
    probes: ProbeManager,
    backoff: BackOff,
    waiting: BTreeMap<String, (String, String)>,
    /// The status last written, and the revision that gave it.
    written: Option<(u64, PodStatus)>,
    /// The uid of the mirror of a static pod, and the status that it has.
    mirrored: Option<(String, PodStatus)>,
    failure: Option<Failure>,
    /// Pods that end so that this one can run.
    victims: Vec<String>,
    /// Allocated and actuated resources; `None` before the first round.
    record: Option<Record>,
    resize: ResizeState,
    /// Nothing runs any more and nothing will.
    ended: bool,
    cleaned: bool,
    /// Failures in a row of setting up volumes.
    volume_failures: u32,
    /// This agent has set up all volumes once.
    volumes_are_up: bool,
    /// Set while the runtime's last answer is known to be stale.
    behind: bool,
    /// Last observation, as long as nothing was created or removed since.
    last_seen: Option<ObservedPod>,
    /// State of the saved pod on the disk, for the next agent.
    saved: Saved,
    /// Times of the pod's start.
    progress: Progress,
}

impl std::fmt::Debug for PodWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodWorker")
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}

impl PodWorker {
    /// A worker that has not looked yet.
    pub(crate) fn new(context: Arc<WorkerContext>, inbox: Arc<Inbox>) -> Self {
        let uid = uid(&inbox.pod.lock()).to_string();
        let objects = context.objects.for_pod(&uid);
        let control = &context.control;
        let lane = BlockingLane::new(context.runtime.clone());
        let this_node = ThisNode::new(
            &control.config.node_name,
            &control.config.local_volumes_folder(),
            Arc::clone(&context.node),
        );
        let volumes = VolumeSet::new(
            context.runtime.clone(),
            lane.clone(),
            files::pod_folder(&control.config, &uid),
            context.mounter.clone(),
            objects.clone(),
            Arc::new(context.csi.clone()),
            control.node,
            this_node,
            memory_bytes_max(&inbox.pod.lock(), control.node.memory_bytes),
        );
        let probes = ProbeManager::new(
            context.runtime.clone(),
            control.cri.clone(),
            context.events.clone(),
            inbox.wake.clone(),
            context.probe_metrics.clone(),
        );
        let progress = Progress::new(&context.runtime, &inbox.pod.lock());
        Self {
            context,
            inbox,
            uid,
            lane,
            volumes,
            objects,
            probes,
            backoff: BackOff::default(),
            waiting: BTreeMap::new(),
            written: None,
            mirrored: None,
            failure: None,
            victims: Vec::new(),
            record: None,
            resize: ResizeState::default(),
            ended: false,
            cleaned: false,
            volume_failures: 0,
            volumes_are_up: false,
            behind: false,
            last_seen: None,
            saved: Saved::default(),
            progress,
        }
    }

    /// Works until the pod is gone.
    pub(crate) async fn run(mut self) {
        loop {
            let began = self.begin_sync();
            let next = self.sync().await;
            self.end_sync(began, next);
            match next {
                Next::Done => break,
                Next::Wait(None) => self.inbox.wake.notified().await,
                Next::Wait(Some(until)) => {
                    let wait = Duration::try_from(until.duration_since(self.now())).unwrap_or_default();
                    tokio::select! {
                        biased;
                        () = self.inbox.wake.notified() => {}
                        () = self.context.runtime.sleep(wait) => {}
                    }
                }
            }
        }
        self.probes.stop();
        self.context.objects.forget_pod(&self.uid);
        self.context.control.images.forget_pod(&self.uid);
        self.context.control.services.forget_pod(&self.uid);
        self.context.allocations.release(&self.uid);
        self.context.devices.release(&self.uid);
        self.context.dra.forget_pod(&self.uid);
        self.context.owners.lock().retain(|_, owner| *owner != self.uid);
    }

    fn now(&self) -> Timestamp {
        self.context.runtime.now()
    }

    fn after(&self, pause: Duration) -> Next {
        Next::Wait(self.now().checked_add(pause).ok())
    }

    fn pod(&self) -> Arc<Pod> {
        self.inbox.pod.lock().clone()
    }

    fn is_gone(&self) -> bool {
        self.inbox.gone.load(std::sync::atomic::Ordering::Acquire)
    }

    /// One round, dropped wherever it waits when the pod is to end meanwhile: in a pull, a hook, a grace period or an
    /// answer that does not come. Its begun work is observed again by the next.
    async fn interruptible_round(&mut self) -> Result<Option<Next>, node_cri::CriError> {
        let ending = self.inbox.ending.clone();
        if ending.is_cancelled() || self.ended || self.failure.is_some() {
            return self.round().await;
        }
        let runtime = self.context.runtime.clone();
        let deadline = self.deadline(&self.pod());
        let left = deadline
            .map(|deadline| Duration::try_from(deadline.duration_since(self.now())).unwrap_or_default());
        let out_of_time = async {
            match left.filter(|left| !left.is_zero()) {
                Some(left) => runtime.sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = ending.cancelled() => Ok(None),
            () = out_of_time => Ok(None),
            outcome = self.round() => outcome,
        }
    }

    /// Rounds until there is nothing left to do now.
    async fn sync(&mut self) -> Next {
        for _ in 0..ROUNDS_MAX {
            match self.interruptible_round().await {
                Ok(Some(next)) if self.behind => return next.no_later_than(self.after(LOOK_AFTER_CATCH_UP)),
                Ok(Some(next)) => return next,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(pod = %full_name(&self.pod()), error = %error, "runtime did not answer");
                    return self.after(RETRY_WRITE_AFTER);
                }
            }
        }
        self.after(RETRY_WRITE_AFTER)
    }

    /// One round; `None` requests another at once.
    async fn round(&mut self) -> Result<Option<Next>, node_cri::CriError> {
        let pod = self.pod();
        if self.is_gone() || pod.metadata.deletion_timestamp.is_some() {
            // Whatever there is goes, also what an unanswered call has made.
            self.last_seen = None;
        }
        let observed = self.read_runtime().await?;
        if self.is_gone() {
            return self.clean_up_deleted(&pod, &observed).await.map(Some);
        }
        self.check_deadline(&pod);
        self.check_disrupted(&pod);
        self.admit(&pod, &observed).await;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        self.ended |= matches!(phase, Some("Succeeded" | "Failed"));
        if pod.metadata.deletion_timestamp.is_some() || self.ended || self.failure.is_some() {
            return self.end(&pod, &observed).await.map(Some);
        }
        let (allocations, wake) = (&self.context.allocations, &self.inbox.wake);
        if allocations.holds_any(&self.victims, &self.uid, wake) {
            return Ok(Some(Next::Wait(None)));
        }
        let previous = self.previous(&pod);
        let began = self.resize.clone();
        let Some(pod) = self.allocated(&pod, &previous).await else {
            return Ok(Some(self.after(RETRY_WRITE_AFTER)));
        };
        if self.resize != began {
            self.report(&pod, &observed, false).await;
        }
        let ip = observed
            .sandbox()
            .and_then(|sandbox| sandbox.ips.first())
            .cloned();
        let ip = ip.unwrap_or_else(|| self.context.control.config.node_ip.to_string());
        self.probes.follow(&pod, &ip, &previous, observed.running());
        let view = self.probes.view();
        let snapshot = Snapshot {
            pod: &pod,
            observed: &observed,
            probes: &view,
            actuated: self.actuated(),
            backoff: &self.backoff,
            now: self.now(),
        };
        let plan = plan(&snapshot);
        self.settle_waiting(&pod, &observed, &plan);
        if plan.finish {
            self.ended = true;
            return Ok(None);
        }
        if self.check_devices(&pod, &plan) {
            return Ok(None);
        }
        if RoundStage::of(&pod, &observed) != RoundStage::Begun {
            // What follows would hide that all containers end and start anew.
            self.report(&pod, &observed, false).await;
        }
        let outcome = self.act(&pod, &observed, &plan).await?;
        if outcome == ActOutcome::No {
            self.last_seen = Some(observed.clone());
        }
        match outcome {
            ActOutcome::Yes => Ok(None),
            ActOutcome::No => self.idle(&pod, &observed, &plan).await.map(Some),
            ActOutcome::Failed => {
                let observed = self.observe().await?;
                self.report(&pod, &observed, false).await;
                // What cannot be mounted now may never be: a change of its objects wakes the worker.
                Ok(Some(self.after(volume_pause(self.volume_failures))))
            }
        }
    }

    /// Reasons of earlier failures are kept for containers that still wait; the plan's own are added.
    fn settle_waiting(&mut self, pod: &Pod, observed: &ObservedPod, plan: &Plan) {
        let backing_off = |reason: &str| reason == "CrashLoopBackOff";
        self.waiting.retain(|name, (reason, _)| {
            let running = observed
                .latest(name)
                .is_some_and(|found| found.state == ContainerState::Running);
            !running && !backing_off(reason)
        });
        for (name, (reason, message)) in &plan.waiting {
            let text = format!(
                "Back-off restarting failed container {name} in pod {}",
                full_name_with_uid(pod)
            );
            self.context
                .events
                .container(pod, name, EventType::Warning, "BackOff", text);
            self.waiting
                .insert(name.clone(), (reason.clone(), message.clone()));
        }
    }

    /// Ends a round without actions: writes the status, refreshes volumes, and returns the time of the next round.
    async fn idle(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
        plan: &Plan,
    ) -> Result<Next, node_cri::CriError> {
        self.resize_done(pod);
        let written = self.report(pod, observed, false).await;
        // A server that takes no status has no objects either, and is tried again before long.
        let calls_again = self.volumes.publish_again_at().is_some_and(|at| at <= self.now());
        // What an earlier agent has had shown is the driver's to say again.
        let is_taken_over = !self.volumes_are_up && may_have_drivers(pod);
        if written && (has_object_volumes(pod) || calls_again || is_taken_over) {
            self.set_up_volumes(pod).await;
        }
        // Claims of which nothing is written down are their drivers' to say again, and would not be taken back.
        let is_unprepared = self.context.dra.has_unknown(pod) && !self.prepare_claims(pod).await;
        self.collect_ended(observed).await;
        self.save().await;
        let mut times = vec![
            plan.requeue_at,
            self.deadline(pod),
            self.context.objects.next_renewal(&self.uid),
            self.volumes.publish_again_at().filter(|at| *at > self.now()),
        ];
        if has_object_volumes(pod) {
            times.push(self.now().checked_add(REFRESH_AFTER).ok());
        }
        if is_unprepared {
            times.push(self.now().checked_add(RETRY_AFTER).ok());
        }
        if !written {
            times.push(self.now().checked_add(RETRY_WRITE_AFTER).ok());
        }
        if self.volume_failures > 0 {
            let pause = volume_pause(self.volume_failures);
            times.push(self.now().checked_add(pause).ok());
        }
        Ok(Next::Wait(times.into_iter().flatten().min()))
    }

    /// Removes ended containers beyond those kept.
    async fn collect_ended(&mut self, observed: &ObservedPod) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for found in &observed.containers {
            let count = seen.entry(found.name.as_str()).or_default();
            *count += 1;
            if *count > ENDED_CONTAINERS_KEPT && found.state == ContainerState::Exited {
                self.last_seen = None;
                let request = node_cri::v1::RemoveContainerRequest {
                    container_id: found.id.clone(),
                };
                let _ = self.context.control.cri.remove_container(request).await;
                let log = std::path::PathBuf::from(&found.log_path);
                let _ = self
                    .lane
                    .run("removing a log", move || files::remove_log(&log))
                    .await;
            }
        }
    }
}

/// Returns the pause before the next try after so many failures of volumes in a row; without one, how long after another failed step.
fn volume_pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else {
        return RETRY_AFTER;
    };
    let (first, last) = VOLUME_RETRY_AFTER;
    first.saturating_mul(1 << doublings.min(8)).min(last)
}

/// Memory in bytes that a pod may use of the node's.
fn memory_bytes_max(pod: &Pod, of_the_node: i64) -> u64 {
    let limit = pod_limits(pod, None)
        .memory_limit_bytes
        .filter(|limit| *limit > 0);
    u64::try_from(limit.map_or(of_the_node, |limit| limit.min(of_the_node))).unwrap_or(0)
}

fn has_object_volumes(pod: &Pod) -> bool {
    spec(pod).volumes.iter().flatten().any(|volume| {
        volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some()
    })
}

/// Reports whether a volume of the pod is a driver's, or may be.
fn may_have_drivers(pod: &Pod) -> bool {
    let mut volumes = spec(pod).volumes.iter().flatten();
    volumes.any(|volume| {
        volume.csi.is_some() || volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_fail_are_tried_again_as_upstreams() {
        let pauses: Vec<u128> = (1..=10)
            .map(|failures| volume_pause(failures).as_millis())
            .collect();
        let expected = [
            500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 122_000, 122_000,
        ];
        assert_eq!(pauses, expected);
        assert_eq!(volume_pause(u32::MAX), VOLUME_RETRY_AFTER.1);
        assert_eq!(volume_pause(0), RETRY_AFTER, "another step failed");
    }
}
