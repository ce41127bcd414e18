//! Gives containers what they are to have for themselves.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::cpu::policy::{CpuPolicy, exclusive_cpus};
use super::cpu::set::CpuSet;
use super::hints::Hint;
use super::manager::{CONTAINER, PHYSICAL_CPU, ResourceManagers, UNCORE_CACHE};
use super::memory::policy::requested;
use super::rejection::AllocationError;
use crate::pods::{all_containers, full_name, uid};

/// Containers of a pod that were given something, until the pod is admitted. Dropped, the pod loses it again.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    managers: &'a ResourceManagers,
    /// Uid of the pod.
    pod: String,
    containers: BTreeSet<String>,
}

impl<'a> Given<'a> {
    pub(super) fn new(managers: &'a ResourceManagers, pod: &Pod) -> Self {
        Self {
            managers,
            pod: uid(pod).to_owned(),
            containers: BTreeSet::new(),
        }
    }

    /// The pod is admitted, and keeps it.
    pub(super) fn keep(mut self) {
        self.containers.clear();
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.managers.take_back(&self.pod, &self.containers);
    }
}

impl ResourceManagers {
    /// Reports whether a container of a pod is to have anything for itself.
    pub(super) fn gives(&self, pod: &Pod) -> bool {
        let mut containers = all_containers(pod);
        containers.any(|(_, container)| self.gives_cpus(pod, container) || self.gives_memory(pod, container))
    }

    fn gives_cpus(&self, pod: &Pod, container: &Container) -> bool {
        self.cpu.is_some() && exclusive_cpus(pod, container) > 0
    }

    fn gives_memory(&self, pod: &Pod, container: &Container) -> bool {
        self.memory.is_some() && requested(pod, container).is_ok_and(|own| !own.is_empty())
    }

    /// Gives a container what it is to have for itself, of these NUMA nodes first.
    pub(super) fn allocate_to(
        &self,
        pod: &Pod,
        container: &Container,
        place: Hint,
        given: &mut Given<'_>,
    ) -> Result<(), AllocationError> {
        if self.gives_cpus(pod, container) {
            self.allocate_cpus(pod, container, place, given)?;
        }
        self.allocate_memory(pod, container, place, given)
    }

    fn allocate_cpus(
        &self,
        pod: &Pod,
        container: &Container,
        place: Hint,
        given: &mut Given<'_>,
    ) -> Result<(), AllocationError> {
        let Some(policy) = &self.cpu else {
            return Ok(());
        };
        let metrics = &self.metrics;
        metrics.cpu.requests.of(&[]).inc();
        let outcome = {
            let mut state = self.cpu_state.lock();
            let outcome = policy.allocate(&mut state.table, pod, container, place.nodes);
            state.generation += u64::from(matches!(outcome, Ok(Some(_))));
            outcome
        };
        if policy.options.full_cores_only {
            let counters = if outcome.is_ok() {
                &metrics.aligned
            } else {
                &metrics.not_aligned
            };
            counters.of(&[CONTAINER, PHYSICAL_CPU]).inc();
        }
        if outcome.is_err() {
            metrics.cpu.errors.of(&[]).inc();
        }
        if let Some(own) = outcome? {
            given.containers.insert(container.name.clone());
            self.cpus_given(policy, pod, container, &own);
        }
        Ok(())
    }

    fn cpus_given(&self, policy: &CpuPolicy, pod: &Pod, container: &Container, own: &CpuSet) {
        tracing::info!(pod = %full_name(pod), container = container.name, cpus = %own, "processors allocated");
        if policy.topology.share_cache(own) {
            self.metrics.aligned.of(&[CONTAINER, UNCORE_CACHE]).inc();
        }
        self.cpu_changed();
    }

    fn allocate_memory(
        &self,
        pod: &Pod,
        container: &Container,
        place: Hint,
        given: &mut Given<'_>,
    ) -> Result<(), AllocationError> {
        let Some(policy) = &self.memory else {
            return Ok(());
        };
        let outcome = {
            let mut state = self.memory_state.lock();
            let outcome = policy.allocate(&mut state.table, pod, container, place);
            state.generation += u64::from(outcome == Ok(true));
            outcome
        };
        if self.gives_memory(pod, container) {
            self.metrics.memory.requests.of(&[]).inc();
            if outcome.is_err() {
                self.metrics.memory.errors.of(&[]).inc();
            }
        }
        if outcome.map_err(AllocationError::Unexpected)? {
            given.containers.insert(container.name.clone());
        }
        Ok(())
    }

    /// Gives a container that is about to start what an agent before this one has lost; without it the container runs on what
    /// all share.
    pub(crate) fn recover(&self, pod: &Pod, container: &Container) {
        if !self.has_lost(pod, container) {
            return;
        }
        let mut given = Given::new(self, pod);
        if let Err(error) = self.allocate_to(pod, container, Hint::default(), &mut given) {
            tracing::warn!(pod = %full_name(pod), container = container.name, %error, "processors and memory not allocated");
        }
        given.keep();
        self.cpu_saver.save_soon();
        self.memory_saver.save_soon();
    }

    fn has_lost(&self, pod: &Pod, container: &Container) -> bool {
        let (uid, name) = (uid(pod), &container.name);
        let cpus = self.gives_cpus(pod, container) && self.cpu_state.lock().table.own(uid, name).is_none();
        let memory =
            self.gives_memory(pod, container) && self.memory_state.lock().table.own(uid, name).is_none();
        cpus || memory
    }
}
