//! Status of a pod, and the reasons why it may not run.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::{Api, Patch, PatchParams};

use super::PodWorker;
use crate::api::events::EventType;
use crate::containers::stopping::grace_period;
use crate::eviction::admission::rejection as pressure_rejection;
use crate::eviction::config::REASON;
use crate::metrics::pods::PodMetrics;
use crate::pods::admission::{Rejection, node_rejection, rejection, taint_rejection};
use crate::pods::disruption::Failure;
use crate::pods::observed::ObservedPod;
use crate::pods::plan::Plan;
use crate::pods::resize::actual::ResourceView;
use crate::pods::resize::allocation::{Allocatable, PreemptionError, ResourceRequest, Shortage};
use crate::pods::status::{StatusInput, generate};
use crate::pods::status_patch::status_patch;
use crate::pods::{full_name, is_static, name, namespace, spec, uid};
use crate::shutdown;

impl PodWorker {
    /// Returns the current status: the last one written, or a newer one of the API server.
    pub(super) fn previous(&self, pod: &Pod) -> PodStatus {
        let theirs = pod.status.clone().unwrap_or_default();
        match &self.written {
            // The watch is behind the agent's own writes; a patch against the older status would send, and
            // reset, fields again.
            Some((revision, status)) if *revision >= revision_of(pod) => status.clone(),
            _ => theirs,
        }
    }

    /// Writes the status if it differs; false if that could not be done.
    pub(super) async fn report(&mut self, pod: &Pod, observed: &ObservedPod, terminal: bool) -> bool {
        let previous = self.previous(pod);
        let view = self.probes.view();
        let status = Arc::new(generate(&StatusInput {
            pod,
            previous: &previous,
            observed,
            waiting: &self.waiting,
            resources: ResourceView {
                state: &self.resize,
                actuated: self.actuated(),
                limits: &self.limits(pod, observed),
            },
            probes: &view,
            node_ip: self.context.control.config.node_ip,
            runtime_name: &self.context.control.runtime_name,
            terminal,
            failure: self.failure.as_ref(),
            now: self.now(),
        }));
        // Before the write: eviction and the summary API read it also while the API server is away.
        self.inbox.status.lock().replace(Arc::clone(&status));
        if is_static(pod) {
            return self.report_to_mirror(pod, status).await;
        }
        let Some(patch) = status_patch(uid(pod), &previous, &status) else {
            return true;
        };
        self.status_changed();
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace(pod));
        match api
            .patch_status(name(pod), &PatchParams::default(), &Patch::Strategic(&patch))
            .await
        {
            Ok(answer) => {
                let revision = revision_of(&answer);
                let status = answer.status.unwrap_or_else(|| (*status).clone());
                self.status_is_written(pod, &status);
                self.written = Some((revision, status));
                true
            }
            // It is written: what this node cannot decode of the pod says nothing of that.
            Err(kube::Error::SerdeError(_)) => {
                self.written = Some((revision_of(pod), (*status).clone()));
                true
            }
            // It has gone, or another of its name is there: the watch will say so.
            Err(kube::Error::Api(refused)) if refused.code == 404 || refused.code == 409 => true,
            Err(error) => {
                tracing::debug!(pod = %full_name(pod), error = %error, "status not written");
                false
            }
        }
    }

    /// Writes the status of a static pod to its mirror. Without a mirror, or without an API server, the pod goes on.
    async fn report_to_mirror(&mut self, pod: &Pod, status: Arc<PodStatus>) -> bool {
        let mut status = (*status).clone();
        let Some(mirror) = self.context.mirrors.of(pod) else {
            self.written = Some((0, status));
            return true;
        };
        let reported = self.mirrored.take().filter(|(own, _)| own == uid(&mirror));
        let before = reported.map_or_else(
            || mirror.status.clone().unwrap_or_default(),
            |(_, reported)| reported,
        );
        // The class of a pod is decided by the API server, for once and all.
        status.qos_class = before.qos_class.clone().or(status.qos_class);
        self.written = Some((0, status.clone()));
        let Some(patch) = status_patch(uid(&mirror), &before, &status) else {
            self.mirrored = Some((uid(&mirror).to_owned(), before));
            return true;
        };
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace(pod));
        let written = api
            .patch_status(name(pod), &PatchParams::default(), &Patch::Strategic(&patch))
            .await;
        match written {
            Ok(answer) => {
                let reported = answer.status.unwrap_or(status);
                self.written = Some((0, reported.clone()));
                self.mirrored = Some((uid(&mirror).to_owned(), reported));
                true
            }
            // It is written: what this node cannot decode of the mirror says nothing of that.
            Err(kube::Error::SerdeError(_)) => {
                self.mirrored = Some((uid(&mirror).to_owned(), status));
                true
            }
            // Its successor is notified when it is there.
            Err(kube::Error::Api(refused)) if refused.code == 404 || refused.code == 409 => true,
            Err(error) => {
                tracing::debug!(pod = %full_name(pod), error = %error, "status of a static pod not written");
                false
            }
        }
    }

    pub(super) fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = spec(pod).active_deadline_seconds?;
        let start = self.previous(pod).start_time?.0;
        start
            .checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
            .ok()
    }

    /// Decides in the first round whether this node runs the pod. A pod that an agent has begun to run is not checked
    /// again.
    pub(super) async fn admit(&mut self, pod: &Pod, observed: &ObservedPod) {
        let decided = self.record.is_some() || self.failure.is_some() || self.ended;
        if decided || pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let is_new = !has_begun(pod) && self.victims.is_empty();
        let under_pressure = is_new.then(|| self.rejected_under_pressure(pod)).flatten();
        let refused = under_pressure
            .or_else(|| rejection(pod, &self.context.control.abilities))
            .or_else(|| self.rejected_at_shutdown().filter(|_| is_new));
        let found = match refused {
            None if !is_new => return,
            None => self.admit_with_devices(pod, observed).await,
            Some(found) => Err(found),
        };
        let found = match found {
            Ok(victims) => {
                PodMetrics::of(&self.context.runtime).admitted(pod);
                return self.preempt(victims);
            }
            Err(found) => found,
        };
        self.reject(pod, found);
    }

    fn reject(&mut self, pod: &Pod, found: Rejection) {
        PodMetrics::of(&self.context.runtime).rejected(&found.reason);
        let message = format!("Pod was rejected: {}", found.message);
        let events = &self.context.events;
        events.pod(pod, EventType::Warning, found.reason.clone(), found.message);
        self.failure = Some(Failure::new(found.reason.into_owned(), message));
    }

    /// Gives the pod its devices and processors, and then all else that it requests, in upstream's order. It keeps none if it is rejected.
    async fn admit_with_devices(&self, pod: &Pod, observed: &ObservedPod) -> Result<Vec<String>, Rejection> {
        let runs = observed.running().next().is_some();
        let context = &self.context;
        let given = context
            .resource_managers
            .admit(&context.devices, pod, runs)
            .await?;
        let victims = self.admit_to_node(pod).await?;
        given.keep();
        // Devices are allocated before the node's resources, as upstream, and released by drop where these are
        // refused.
        Ok(victims)
    }

    /// Fails the pod if a container of it is about to start whose devices are gone since the agent before this one gave them:
    /// its owner makes another. True where it has failed.
    pub(super) fn check_devices(&mut self, pod: &Pod, plan: &Plan) -> bool {
        let starting = plan.start.iter().map(|start| &*start.name);
        let lost = self.context.devices.lost(pod, starting);
        if let Some(why) = &lost {
            self.reject(pod, Rejection::unexpected_allocation(why));
        }
        lost.is_some()
    }

    fn rejected_under_pressure(&self, pod: &Pod) -> Option<Rejection> {
        let message = pressure_rejection(pod, self.context.pressure.get())?;
        Some(Rejection {
            reason: REASON.into(),
            message,
        })
    }

    fn rejected_at_shutdown(&self) -> Option<Rejection> {
        let is_shutting_down = self.context.shutting_down.get();
        is_shutting_down.then(shutdown::admission::rejection)
    }

    /// Ends the victims of this pod.
    fn preempt(&mut self, victims: Vec<String>) {
        if let Some(preempt) = self.context.preempt.get() {
            victims.iter().for_each(|uid| preempt(uid));
        }
        self.victims = victims;
    }

    /// Fails the pod if it is to end for another or for the node.
    pub(super) fn check_disrupted(&mut self, pod: &Pod) {
        if self.failure.is_some() || self.ended {
            return;
        }
        let Some(disruption) = self.inbox.disruption.lock().clone() else {
            return;
        };
        let (reason, message) = (disruption.reason, disruption.message.clone());
        if disruption.has_event {
            let events = &self.context.events;
            events.annotated(pod, reason, message, disruption.annotations.clone());
        }
        self.failure = Some(disruption.into());
    }

    /// Grace period of the pod in seconds: its own, or less where it is evicted.
    pub(super) fn grace(&self, pod: &Pod) -> i64 {
        let own = grace_period(pod);
        let disruption = self.inbox.disruption.lock();
        let most = disruption
            .as_ref()
            .and_then(|disruption| disruption.grace_seconds);
        // Upstream's, too, gives no less than a second.
        most.map_or(own, |most| own.min(most.max(1)))
    }

    /// Preempts other pods for a critical one, if nothing but resources keeps it from running.
    fn make_room(&self, pod: &Pod, node: &Node, allocatable: &Allocatable) -> Result<Vec<String>, Rejection> {
        if let Some(found) = node_rejection(pod, node).or_else(|| taint_rejection(pod, node)) {
            return Err(found);
        }
        let given = self
            .context
            .allocations
            .preempt(&self.uid, ResourceRequest::of(pod), allocatable);
        given.map_err(|error| match error {
            PreemptionError::Ports => Shortage::Ports.into(),
            PreemptionError::Nobody(why) => Rejection::unexpected(&why),
        })
    }

    /// Allocates the pod on the node and returns the uids of its victims, or the reason of its rejection.
    async fn admit_to_node(&self, pod: &Pod) -> Result<Vec<String>, Rejection> {
        let mut node = self.context.node.lock().clone();
        let admit = |node: &Node| {
            let (request, mut allocatable) = (ResourceRequest::of(pod), Allocatable::of(node));
            allocatable.has_at_least(self.context.devices.held_by_all(pod));
            let critical = request.is_critical();
            let given = self.context.allocations.admit(&self.uid, request, &allocatable);
            // Upstream names shortages first, ports after labels.
            let found = match given {
                Err(Shortage::Resource(..)) if critical => return self.make_room(pod, node, &allocatable),
                Err(Shortage::Ports) => node_rejection(pod, node).or(Some(Shortage::Ports.into())),
                Err(shortage) => Some(shortage.into()),
                Ok(()) => node_rejection(pod, node).or_else(|| taint_rejection(pod, node)),
            };
            found.map_or(Ok(Vec::new()), |found| {
                self.context.allocations.release(&self.uid);
                // `admit` has allocated; only the labels refuse the pod, and a rejected pod holds nothing.
                Err(found)
            })
        };
        let found = admit(&node);
        if !matches!(&found, Err(found) if found.is_node_affinity()) {
            return found;
        }
        // Its labels may have changed a moment ago.
        let api: Api<Node> = Api::all(self.context.client.clone());
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Ok(now) = api.get(&name).await {
            node = Arc::new(now);
        }
        admit(&node)
    }

    pub(super) fn check_deadline(&mut self, pod: &Pod) {
        if self.failure.is_none()
            && !self.ended
            && self.deadline(pod).is_some_and(|deadline| deadline <= self.now())
        {
            let message = "Pod was active on the node longer than the specified deadline";
            self.context
                .events
                .pod(pod, EventType::Normal, "DeadlineExceeded", message);
            self.failure = Some(Failure::new("DeadlineExceeded", message));
        }
    }
}

pub(super) fn revision_of(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_ref()
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

/// Reports whether an agent of this node has admitted the pod: its status has a start time.
pub(in crate::pods) fn has_begun(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| status.start_time.is_some())
}
