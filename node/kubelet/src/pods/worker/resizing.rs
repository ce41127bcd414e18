//! A pod whose resources are changed while it runs: see [`crate::pods::resize`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerResizePolicy, Pod, PodStatus};
use node_cri::v1::UpdateContainerResourcesRequest;
use node_sys::cgroup::CgroupResources;

use super::PodWorker;
use super::acting::ActOutcome;
use crate::api::events::EventType;
use crate::containers::files;
use crate::containers::resources::{MemoryFacts, may_swap, pod_limits, request};
use crate::pods::observed::ObservedPod;
use crate::pods::plan::Plan;
use crate::pods::resize::allocation::{Allocatable, ResourceRequest};
use crate::pods::resize::conditions::{ResizeCondition, ResizeState, event};
use crate::pods::resize::steps::{Step, steps};
use crate::pods::resize::{Record, Resize, Resources};
use crate::pods::{all_containers, full_name};

/// Refusal of another request of memory for a container that has swap and is not restarted for it, as upstream: its part of the
/// swap would change.
fn swapping_refusal(pod: &Pod, allocated: &Pod, memory: MemoryFacts) -> Option<&'static str> {
    let restarts = |container: &Container| {
        let policies = container.resize_policy.iter().flatten();
        let of_memory = |own: &&ContainerResizePolicy| own.resource_name == "memory";
        policies
            .filter(of_memory)
            .any(|own| own.restart_policy == "RestartContainer")
    };
    let is_refused = all_containers(pod).any(|(_, wanted)| {
        let mut before = all_containers(allocated).map(|(_, own)| own);
        let Some(own) = before.find(|own| own.name == wanted.name) else {
            return false;
        };
        let differs = request(wanted, "memory") != request(own, "memory") && !restarts(own);
        differs && (may_swap(pod, wanted, memory) || may_swap(allocated, own, memory))
    });
    is_refused.then_some("In-place resize of containers with swap is not supported.")
}

impl PodWorker {
    /// Returns the pod with its allocated resources in place of its requests, after an attempt to allocate those; `None`
    /// where the disk does not say what was allocated before.
    pub(super) async fn allocated(&mut self, pod: &Arc<Pod>, previous: &PodStatus) -> Option<Arc<Pod>> {
        let mut record = match self.record.clone() {
            Some(record) => record,
            None => self.load_record(pod, previous).await?,
        };
        let wanted = Resources::of(pod);
        if wanted == record.allocated {
            self.resize.pending = None;
        } else if let Some(refusal) = self.refusal(pod, &record) {
            self.refuse(pod, refusal);
        } else if self.allocate(pod) {
            record.allocated = wanted;
            self.keep(record).await;
        }
        self.record.as_ref().map(|record| record.allocated.put_into(pod))
    }

    async fn load_record(&mut self, pod: &Arc<Pod>, previous: &PodStatus) -> Option<Record> {
        let folder = self.folder();
        let load = move || Record::load(&folder);
        let before = match self.lane.run("reading the allocated resources", load).await {
            Ok(before) => before,
            Err(error) => {
                tracing::warn!(pod = %full_name(pod), %error, "allocated resources of a pod not read");
                return None;
            }
        };
        // No file: the pod is new on this node, or an agent from before resizes ran it; its spec is what it was
        // started with.
        let record = before.unwrap_or_else(|| Record::new(pod));
        let allocated = record.allocated.put_into(pod);
        self.context
            .allocations
            .hold(&self.uid, ResourceRequest::of(&allocated));
        self.resize = ResizeState::of(previous);
        self.record = Some(record.clone());
        Some(record)
    }

    /// Returns why this node never gives the pod what it requests now.
    fn refusal(&self, pod: &Arc<Pod>, record: &Record) -> Option<&'static str> {
        let managers = &self.context.resource_managers;
        let allocated = record.allocated.put_into(pod);
        let refused = managers.resize_refusal(pod, &allocated);
        refused.or_else(|| swapping_refusal(pod, &allocated, self.context.control.memory))
    }

    fn refuse(&mut self, pod: &Pod, message: &str) {
        let generation = pod.metadata.generation.unwrap_or_default();
        let infeasible = ResizeCondition {
            reason: "Infeasible".to_owned(),
            message: message.to_owned(),
            generation,
        };
        if self.resize.pending.as_ref() != Some(&infeasible) {
            let text = event("Infeasible", pod, generation, message);
            let events = &self.context.events;
            events.pod(pod, EventType::Warning, "ResizeInfeasible", text);
        }
        self.resize.pending = Some(infeasible);
    }

    /// Reports whether the node has what the pod requests now, and allocates it if so.
    fn allocate(&mut self, pod: &Pod) -> bool {
        let generation = pod.metadata.generation.unwrap_or_default();
        let allocatable = Allocatable::of(&self.context.node.lock());
        let allocated = self.context.allocations.change(
            &self.uid,
            ResourceRequest::of(pod),
            &allocatable,
            &self.inbox.wake,
        );
        let events = &self.context.events;
        let Err(message) = allocated else {
            self.resize = ResizeState {
                pending: None,
                in_progress: Some(ResizeCondition {
                    generation,
                    ..ResizeCondition::default()
                }),
            };
            let text = event("started", pod, generation, "");
            events.pod(pod, EventType::Normal, "ResizeStarted", text);
            return true;
        };
        let deferred = ResizeCondition {
            reason: "Deferred".to_owned(),
            message,
            generation,
        };
        let before = self.resize.pending.as_ref();
        if before.is_none_or(|before| (&before.reason, before.generation) != (&deferred.reason, generation)) {
            let text = event("Deferred", pod, generation, &deferred.message);
            events.pod(pod, EventType::Warning, "ResizeDeferred", text);
        }
        self.resize.pending = Some(deferred);
        false
    }

    /// Resources that the running containers were given last.
    pub(super) fn actuated(&self) -> &Resources {
        static NOTHING: std::sync::LazyLock<Resources> = std::sync::LazyLock::new(Resources::default);
        self.record.as_ref().map_or(&NOTHING, |record| &record.actuated)
    }

    /// The limits of the running containers' groups, by the runtime's id.
    pub(super) fn limits(&self, pod: &Pod, observed: &ObservedPod) -> BTreeMap<String, CgroupResources> {
        let control = &self.context.control;
        let running = observed.running().map(|found| {
            let group = control.config.groups().of_container(pod, &found.id);
            (found.id.clone(), control.cgroups.limits(&group))
        });
        running.collect()
    }

    /// Reports whether the limits of the pod's group or of a container have to change.
    pub(super) fn has_to_resize(&self, pod: &Arc<Pod>, plan: &Plan) -> bool {
        let group_differs = |record: &Record| {
            record.group != record.allocated
                && pod_limits(&record.group.put_into(pod), None) != pod_limits(pod, None)
        };
        !plan.resize.is_empty() || self.record.as_ref().is_some_and(group_differs)
    }

    /// Applies the changed limits.
    pub(super) async fn act_resize(&mut self, pod: &Arc<Pod>, resizes: &[Resize]) -> ActOutcome {
        // A copy: dropped in the middle, what was held stays held.
        let Some(mut record) = self.record.clone() else {
            return ActOutcome::No;
        };
        match self.apply_resizes(pod, &mut record, resizes).await {
            Ok(()) => {
                self.keep(record).await;
                ActOutcome::Yes
            }
            Err(message) => {
                self.resize_failed(pod, message);
                ActOutcome::Failed
            }
        }
    }

    async fn apply_resizes(
        &self,
        pod: &Arc<Pod>,
        record: &mut Record,
        resizes: &[Resize],
    ) -> Result<(), String> {
        let control = &self.context.control;
        let group = control.config.groups().of_pod(pod);
        // Before the first step: a resize that is refused halfway would leave some containers changed.
        self.check_use(pod, record, resizes)?;
        for step in steps(pod, record, resizes, control.memory) {
            match step {
                Step::Group(limits) => {
                    let (cgroups, group) = (control.cgroups.clone(), group.clone());
                    // A smaller limit makes the kernel look for memory to take back.
                    let applied = self
                        .lane
                        .run("changing the pod's group", move || cgroups.apply(&group, &limits));
                    applied
                        .await
                        .map_err(|error| error.to_string())?
                        .map_err(|error| format!("{error}: {}", error.source))?;
                }
                Step::Container { id, limits } => {
                    let request = UpdateContainerResourcesRequest {
                        container_id: id,
                        linux: Some(*limits),
                        ..UpdateContainerResourcesRequest::default()
                    };
                    let answer = control.cri.update_container_resources(request).await;
                    answer.map_err(|error| error.message())?;
                }
            }
        }
        record.group.clone_from(&record.allocated);
        // Noted after all steps: a failure repeats them all, which sets limits that are in force again.
        for resize in resizes {
            mark_actuated(record, &resize.name);
        }
        Ok(())
    }

    /// A limit below what is in use would end processes; upstream refuses it.
    fn check_use(&self, pod: &Arc<Pod>, record: &Record, resizes: &[Resize]) -> Result<(), String> {
        let control = &self.context.control;
        let groups = control.config.groups();
        let used = |group: &str| control.cgroups.stats(group).memory_usage_bytes.cast_signed();
        let shrinks = |old: i64, new: i64| new > 0 && (old <= 0 || new < old);
        let mut problems = Vec::new();
        let limit = |pod: &Pod| pod_limits(pod, None).memory_limit_bytes.unwrap_or(0);
        let (old, new) = (limit(&record.group.put_into(pod)), limit(pod));
        let usage = used(&groups.of_pod(pod));
        if shrinks(old, new) && usage >= new {
            problems.push(format!(
                "attempting to set pod memory limit ({new}) below current usage ({usage})"
            ));
        }
        for resize in resizes {
            let (old, new) = (resize.from.memory.1, resize.to.memory.1);
            let usage = used(&groups.of_container(pod, &resize.id));
            if shrinks(old, new) && usage >= new {
                problems.push(format!(
                    "attempting to set container {:?} memory limit ({new}) below current usage ({usage})",
                    resize.name
                ));
            }
        }
        let all = match problems.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        Err(format!("cannot decrease memory limits: {all}"))
    }

    fn resize_failed(&mut self, pod: &Pod, message: String) {
        let generation = pod.metadata.generation.unwrap_or_default();
        let condition = self.resize.in_progress.get_or_insert_with(|| ResizeCondition {
            generation,
            ..ResizeCondition::default()
        });
        if (condition.reason.as_str(), &condition.message) != ("Error", &message) {
            let text = event("error", pod, condition.generation, &message);
            let events = &self.context.events;
            events.pod(pod, EventType::Warning, "ResizeError", text);
        }
        condition.reason = "Error".to_owned();
        condition.message = message;
    }

    /// Ends a resize: the allocated resources are actuated.
    pub(super) fn resize_done(&mut self, pod: &Pod) {
        if let Some(condition) = self.resize.in_progress.take() {
            let text = event("completed", pod, condition.generation, "");
            let events = &self.context.events;
            events.pod(pod, EventType::Normal, "ResizeCompleted", text);
        }
    }

    /// Notes that a container was created with its allocated resources.
    pub(super) async fn started_with(&mut self, name: &str) {
        let Some(mut record) = self.record.clone() else {
            return;
        };
        if record.actuated.containers.get(name) != record.allocated.containers.get(name) {
            mark_actuated(&mut record, name);
            self.keep(record).await;
        }
    }

    /// Notes that the pod's first group was created.
    pub(super) async fn group_made(&mut self) {
        let Some(mut record) = self.record.clone() else {
            return;
        };
        record.group.clone_from(&record.allocated);
        self.keep(record).await;
    }

    pub(super) fn folder(&self) -> std::path::PathBuf {
        files::pod_folder(&self.context.control.config, &self.uid)
    }

    /// Keeps the record, and saves it. A round that is dropped meanwhile leaves the record that is kept: the next agent
    /// would only apply the same again.
    async fn keep(&mut self, record: Record) {
        self.record = Some(record.clone());
        let folder = self.folder();
        let store = move || record.store(&folder);
        let failure = match self.lane.run("saving the allocated resources", store).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(pod = %full_name(&self.pod()), error = failure, "saving the allocated resources of a pod failed");
    }
}

fn mark_actuated(record: &mut Record, name: &str) {
    if let Some(own) = record.allocated.containers.get(name) {
        record.actuated.containers.insert(name.to_owned(), own.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resize_of_a_container_with_swap_is_infeasible() {
        let pod = |memory: &str, policy: &str| -> Pod {
            let resources = json!({"requests": {"memory": memory}, "limits": {"memory": "2Gi"}});
            let container = json!({"name": "c", "resources": resources,
                "resizePolicy": [{"resourceName": "memory", "restartPolicy": policy}]});
            serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap()
        };
        let facts = MemoryFacts {
            capacity_bytes: 4 << 30,
            swap_limit: true,
            swap_bytes: Some(1 << 30),
            ..MemoryFacts::default()
        };
        let refused = |from: &Pod, to: &Pod, facts| swapping_refusal(to, from, facts).is_some();
        let (small, large) = (pod("1Gi", "NotRequired"), pod("1500Mi", "NotRequired"));
        assert!(refused(&small, &large, facts));
        assert!(!refused(&small, &small, facts));
        let without = MemoryFacts {
            swap_bytes: None,
            ..facts
        };
        assert!(!refused(&small, &large, without), "NoSwap");
        let restarted = pod("1Gi", "RestartContainer");
        assert!(!refused(&restarted, &pod("1500Mi", "RestartContainer"), facts));
    }
}
