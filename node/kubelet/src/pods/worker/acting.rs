//! Actions of a worker that make its pod run: sandbox, volumes, containers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use node_volume::SetUp;

use super::PodWorker;
use crate::api::events::EventType;
use crate::containers::control::PodFacilities;
use crate::containers::sandbox::host_ports;
use crate::containers::stopping::{Hook, Killing, grace_period};
use crate::pods::observed::ObservedPod;
use crate::pods::plan::Plan;
use crate::pods::{full_name, termination};

/// Outcome of the actions of a round: something changed, nothing to do, or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActOutcome {
    Yes,
    No,
    Failed,
}

impl PodWorker {
    pub(super) async fn act(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
        plan: &Plan,
    ) -> Result<ActOutcome, node_cri::CriError> {
        // Alone: whatever else the plan says is decided again with the sandbox that is made.
        if let Some(attempt) = plan.create_sandbox {
            return self.act_sandbox(pod, observed, attempt).await;
        }
        // In every round, not only when containers start: an agent that was restarted has to claim what its
        // predecessor left.
        let holds_ports = self.hold_host_ports(pod, observed).await;
        let resizes = self.has_to_resize(pod, plan);
        if plan.kill.is_empty() && plan.remove.is_empty() && plan.start.is_empty() && !resizes {
            return Ok(if holds_ports {
                ActOutcome::No
            } else {
                ActOutcome::Failed
            });
        }
        let ip = observed
            .sandbox()
            .and_then(|sandbox| sandbox.ips.first())
            .map(String::as_str);
        let control = &self.context.control;
        let kills = plan.kill.iter().map(|kill| {
            let killing = Killing {
                why: &kill.message,
                ..Killing::within(kill.grace_seconds.unwrap_or_else(|| grace_period(pod)), ip)
            };
            control.kill(pod, &kill.name, &kill.id, killing)
        });
        futures::future::join_all(kills).await;
        let unknown = plan.kill.iter().filter(|kill| kill.remove).map(|kill| &kill.id);
        for id in unknown.chain(&plan.remove) {
            let container_id = id.clone();
            let request = node_cri::v1::RemoveContainerRequest { container_id };
            control.cri.remove_container(request).await?;
        }
        if !plan.kill.is_empty() {
            // What starts again is decided on how the killed ones ended.
            return Ok(ActOutcome::Yes);
        }
        let resized = match resizes {
            true => self.act_resize(pod, &plan.resize).await,
            false => ActOutcome::No,
        };
        if plan.start.is_empty() {
            return Ok(match plan.remove.is_empty() {
                true => resized,
                false => ActOutcome::Yes,
            });
        }
        if !holds_ports {
            return Ok(ActOutcome::Failed);
        }
        if !self.set_up_volumes(pod).await {
            return Ok(ActOutcome::Failed);
        }
        // Of claims that were prepared for the sandbox nothing may be known, as after a damaged checkpoint.
        if self.context.dra.has_unknown(pod) && !self.prepare_claims(pod).await {
            return Ok(ActOutcome::Failed);
        }
        // A container that is to start does not wait for what another cannot give.
        let started = self.start_containers(pod, observed, plan).await?;
        Ok(if resized == ActOutcome::Failed {
            resized
        } else {
            started
        })
    }

    /// Leads ports of the node to the pod, before its containers start. Reports whether it has what it requests.
    async fn hold_host_ports(&self, pod: &Pod, observed: &ObservedPod) -> bool {
        let ready = observed.sandbox().filter(|sandbox| sandbox.ready);
        let addresses = ready.iter().flat_map(|sandbox| &sandbox.ips);
        let Some(address) = addresses.filter_map(|address| address.parse().ok()).next() else {
            return true;
        };
        let context = &self.context;
        let held = context
            .control
            .host_ports
            .hold(&self.uid, address, &host_ports(pod))
            .await;
        let Err(error) = held else { return true };
        let text = format!("Failed to create pod sandbox: {error}");
        context
            .events
            .pod(pod, EventType::Warning, "FailedCreatePodSandBox", text);
        false
    }

    async fn start_containers(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
        plan: &Plan,
    ) -> Result<ActOutcome, node_cri::CriError> {
        let Some(sandbox) = observed.sandbox() else {
            return Ok(ActOutcome::No);
        };
        let mut failed = false;
        for start in &plan.start {
            if let Some(ended) = start.ended_at {
                let now = self.now();
                // Before the start, which may fail or be dropped: the attempt counts in any case.
                self.backoff.tried(&start.name, ended, now);
            }
            let with = PodFacilities {
                volumes: &self.volumes,
                lane: &self.lane,
                objects: self.objects.as_ref(),
                observed,
                sandbox,
            };
            match self.context.control.start(pod, start, with).await {
                Ok(()) => {
                    self.waiting.remove(&start.name);
                    self.started_with(&start.name).await;
                }
                Err(error) => {
                    failed = true;
                    tracing::debug!(pod = %full_name(pod), container = start.name, error = %error, "container not started");
                    self.waiting
                        .insert(start.name.clone(), (error.reason.to_string(), error.message));
                }
            }
        }
        self.collect_ended(observed).await;
        Ok(if failed {
            ActOutcome::Failed
        } else {
            ActOutcome::Yes
        })
    }

    async fn act_sandbox(
        &mut self,
        pod: &Arc<Pod>,
        observed: &ObservedPod,
        attempt: u32,
    ) -> Result<ActOutcome, node_cri::CriError> {
        let context = self.context.clone();
        if attempt > 0 {
            let text = "Pod sandbox changed, it will be killed and re-created.";
            context.events.pod(pod, EventType::Normal, "SandboxChanged", text);
        }
        // An earlier sandbox and its containers end first: two sandboxes of a pod would share its name and its
        // volumes.
        termination::stop_all(&context.control, pod, observed, grace_period(pod), Hook::Run).await?;
        for sandbox in &observed.sandboxes {
            context.control.stop_sandbox(&sandbox.id).await?;
        }
        if let Err(error) = context.control.prepare_pod(pod, &self.lane).await {
            context
                .events
                .pod(pod, EventType::Warning, error.reason, error.message);
            return Ok(ActOutcome::Failed);
        }
        self.group_made().await;
        // The first status and the volumes need nothing of each other.
        let volumes = self.volumes.clone();
        let (set_up, _) = tokio::join!(volumes.set_up(pod), self.report(pod, observed, false));
        if !self.settle_volumes(pod, set_up) {
            return Ok(ActOutcome::Failed);
        }
        // No sandbox without them, as upstream: it would have an address of the node's range for nothing.
        if !self.prepare_claims(pod).await {
            return Ok(ActOutcome::Failed);
        }
        let created = context.control.create_sandbox(pod, attempt).await;
        match created {
            Ok(id) => {
                // The first event of the sandbox may come before the next observation, which would register the
                // owner otherwise.
                context.owners.lock().insert(id, self.uid.clone());
                Ok(ActOutcome::Yes)
            }
            Err(_) => Ok(ActOutcome::Failed),
        }
    }

    /// Has the devices of the pod's claims prepared, and reports whether they are.
    pub(super) async fn prepare_claims(&self, pod: &Pod) -> bool {
        let prepared = self.context.dra.prepare(pod).await;
        let Err(error) = prepared else { return true };
        let events = &self.context.events;
        let (reason, text) = (
            "FailedPrepareDynamicResources",
            format!("Failed to prepare dynamic resources: {error}"),
        );
        events.pod(pod, EventType::Warning, reason, text);
        false
    }

    /// Sets up the volumes and reports whether all are mounted. A volume that keeps old content counts, and is updated later.
    pub(super) async fn set_up_volumes(&mut self, pod: &Pod) -> bool {
        let outcome = self.volumes.set_up(pod).await;
        self.settle_volumes(pod, outcome)
    }

    fn settle_volumes(&mut self, pod: &Pod, outcome: SetUp) -> bool {
        for (volume, error) in &outcome.failures {
            let events = &self.context.events;
            events.pod(pod, EventType::Warning, "FailedMount", error.event(volume));
        }
        for notice in outcome.notices {
            let events = &self.context.events;
            events.pod(pod, EventType::Warning, notice.reason, notice.message);
        }
        self.volume_failures = match outcome.failures.is_empty() {
            true => 0,
            false => self.volume_failures.saturating_add(1),
        };
        self.volumes_are_up |= outcome.are_mounted && outcome.failures.is_empty();
        outcome.are_mounted
    }
}
