//! What is said of a pod: its status, and why it may not go on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, Patch, PatchParams};

use super::PodWorker;
use crate::api::events::EventKind;
use crate::pods::admission::rejection;
use crate::pods::observed::ObservedPod;
use crate::pods::resize::actual::ResourceView;
use crate::pods::status::{StatusInput, generate};
use crate::pods::status_patch::status_patch;
use crate::pods::{full_name, name, namespace, spec, uid};

impl PodWorker {
    /// What the status says now; our own last word if the API server has not told us of a newer.
    pub(super) fn previous(&self, pod: &Pod) -> PodStatus {
        let theirs = pod.status.clone().unwrap_or_default();
        match &self.written {
            Some((revision, status)) if *revision >= revision_of(pod) => status.clone(),
            _ => theirs,
        }
    }

    /// Writes the status if it differs; false if that could not be done.
    pub(super) async fn report(&mut self, pod: &Pod, observed: &ObservedPod, terminal: bool) -> bool {
        let previous = self.previous(pod);
        let view = self.probes.view();
        let status = generate(&StatusInput {
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
            terminal,
            failure: self.failure.as_ref(),
            now: self.now(),
        });
        let Some(patch) = status_patch(uid(pod), &previous, &status) else {
            return true;
        };
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace(pod));
        match api
            .patch_status(name(pod), &PatchParams::default(), &Patch::Strategic(&patch))
            .await
        {
            Ok(answer) => {
                self.written = Some((revision_of(&answer), answer.status.unwrap_or(status)));
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

    pub(super) fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = spec(pod).active_deadline_seconds?;
        let start = self.previous(pod).start_time?.0;
        start
            .checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
            .ok()
    }

    /// At the first look: what this node never runs is rejected.
    pub(super) fn admit(&mut self, pod: &Pod) {
        if self.record.is_some() || self.failure.is_some() || self.ended {
            return;
        }
        if let Some(found) = rejection(pod, &self.context.control.abilities) {
            let message = format!("Pod was rejected: {}", found.message);
            self.context
                .events
                .pod(pod, EventKind::Warning, found.reason, found.message);
            self.failure = Some((found.reason.into(), message));
        }
    }

    pub(super) fn check_deadline(&mut self, pod: &Pod) {
        if self.failure.is_none()
            && !self.ended
            && self.deadline(pod).is_some_and(|deadline| deadline <= self.now())
        {
            let message = "Pod was active on the node longer than the specified deadline";
            self.context
                .events
                .pod(pod, EventKind::Normal, "DeadlineExceeded", message);
            self.failure = Some(("DeadlineExceeded".into(), message.into()));
        }
    }
}

fn revision_of(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_ref()
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}
