//! One pod's worker: observe, decide, act, report; then wait to be woken. [`reading`] observes, [`acting`] carries a plan
//! out in the [`context`] of all workers, [`idling`] ends a round that had none, [`ending`] has how it ends, [`resizing`] how its
//! resources change, [`reporting`] its status, [`saving`] what of it outlives the agent, [`progress`] how long it takes.

mod acting;
mod context;
mod ending;
mod idling;
mod progress;
mod reading;
mod reporting;
mod resizing;
mod saving;

use acting::ActOutcome;
pub(crate) use context::{Inbox, WorkerContext};
use idling::volume_pause;
use progress::Progress;
pub(super) use reporting::has_begun;
use saving::Saved;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use node_sys::blocking::BlockingLane;
use node_volume::{ObjectSource, ThisNode, VolumeSet};

use super::backoff::BackOff;
use super::disruption::Failure;
use super::observed::{ContainerState, ObservedPod};
use super::plan::{Plan, Snapshot, plan};
use super::resize::Record;
use super::resize::conditions::ResizeState;
use super::restarts::RoundStage;
use super::{full_name, full_name_with_uid, uid};
use crate::api::events::EventType;
use crate::containers::files;
use crate::containers::resources::pod_limits;
use crate::probes::ProbeManager;

/// Requeue after a failed step, as upstream's.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Requeue after a failed write to the API server.
const RETRY_WRITE_AFTER: Duration = Duration::from_secs(1);
/// Rounds without a pause; a pod that needs more is requeued.
const ROUNDS_MAX: usize = 32;
/// Requeue after an observation that lags behind the runtime's events.
const LOOK_AFTER_CATCH_UP: Duration = Duration::from_secs(1);

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
    /// A worker that has not observed its pod yet.
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
        self.inbox.taken_down.replace(true);
        self.context.objects.forget_pod(&self.uid);
        self.context.control.images.forget_pod(&self.uid);
        self.context.control.services.forget_pod(&self.uid);
        self.context.allocations.release(&self.uid);
        self.context.devices.release(&self.uid);
        self.context.resource_managers.release(&self.uid);
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
        // An end is never interrupted: it has its own way to shorten the grace period (`stop_within`).
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
            // `None`, and not an error: the next round sees the deletion and ends the pod.
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
        // Admitted, and its victims still run: starting now would overcommit the node. Their release wakes this
        // worker.
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
        // Before the plan, which reads the results: a container that was found running gets its probes in the
        // same round.
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
            // What follows would hide that all containers end and restart.
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
                // Observed again: some containers may have started before one failed, and the status must not
                // deny them.
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
}

/// Memory in bytes that a pod may use of the node's.
fn memory_bytes_max(pod: &Pod, of_the_node: i64) -> u64 {
    let limit = pod_limits(pod, None)
        .memory_limit_bytes
        .filter(|limit| *limit > 0);
    u64::try_from(limit.map_or(of_the_node, |limit| limit.min(of_the_node))).unwrap_or(0)
}
