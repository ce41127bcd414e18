//! Devices, processors and memory of a new pod, which it is given before anything of it starts, aligned where a policy says so.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::config::TopologyManagerScope;
use super::giving::Given;
use super::hints::{Hint, Hints};
use super::manager::{CONTAINER, NUMA_NODE, POD, ResourceManagers};
use super::rejection::AllocationError;
use super::topology::policy::TopologyPolicy;
use crate::devices::admission::Admission;
use crate::devices::manager::DeviceManager;
use crate::pods::all_containers;

/// A new pod waits this long after a start of the agent for the pods before it to be known.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Everything that a pod was given; see both parts.
#[derive(Debug)]
pub(crate) struct GivenToPod<'a> {
    devices: Admission<'a>,
    own: Given<'a>,
}

impl GivenToPod<'_> {
    /// The pod is admitted, and keeps it.
    pub(crate) fn keep(self) {
        self.devices.keep();
        self.own.keep();
    }
}

/// A pod that is looked at.
struct Candidate<'a> {
    pod: &'a Pod,
    devices: &'a DeviceManager,
    given: GivenToPod<'a>,
    /// Containers that are given devices.
    to_be_given: Vec<&'a Container>,
}

impl ResourceManagers {
    /// Gives a new pod what its containers request, and what they are to have for themselves. Where something of the pod runs
    /// already it keeps what it has.
    ///
    /// # Errors
    /// It cannot have that, or what was given cannot be saved; the pod has what it had before then.
    pub(crate) async fn admit<'a>(
        &'a self,
        devices: &'a DeviceManager,
        pod: &'a Pod,
        runs: bool,
    ) -> Result<GivenToPod<'a>, AllocationError> {
        if self.gives(pod) {
            let settled = self.settled.wait_for(|settled| *settled);
            // What deleted pods have is not free before.
            let _ = self.runtime.timeout(START_PATIENCE, settled).await;
        }
        let given = match &self.topology {
            None => self.admit_unaligned(devices, pod, runs).await?,
            Some(topology) => {
                let began = self.runtime.monotonic();
                self.metrics.topology.requests.of(&[]).inc();
                let outcome = self.admit_aligned(topology, devices, pod, runs).await;
                let took = self.runtime.monotonic() - began;
                let durations = self.metrics.topology.durations.of(&[]);
                durations.observe(took.as_secs_f64() * 1000.0);
                if outcome.is_err() {
                    self.metrics.topology.errors.of(&[]).inc();
                }
                outcome?
            }
        };
        self.save().await.map_err(AllocationError::Unexpected)?;
        Ok(given)
    }

    async fn admit_unaligned<'a>(
        &'a self,
        devices: &'a DeviceManager,
        pod: &'a Pod,
        runs: bool,
    ) -> Result<GivenToPod<'a>, AllocationError> {
        let admission = devices.allocate(pod, runs).await;
        let mut given = GivenToPod {
            devices: admission.map_err(AllocationError::Unexpected)?,
            own: Given::new(self, pod),
        };
        for (_, container) in all_containers(pod) {
            self.allocate_to(pod, container, Hint::default(), &mut given.own)?;
        }
        Ok(given)
    }

    /// Pods that have nothing to be aligned wait for no other: a plugin may take long.
    async fn admit_aligned<'a>(
        &'a self,
        topology: &TopologyPolicy,
        devices: &'a DeviceManager,
        pod: &'a Pod,
        runs: bool,
    ) -> Result<GivenToPod<'a>, AllocationError> {
        let to_be_given = devices.to_be_given(pod, runs);
        devices.wait_for_plugins(&to_be_given).await;
        let has_devices = all_containers(pod).any(|(_, container)| devices.gives(container));
        let _turn = match has_devices || self.gives(pod) {
            true => Some(self.turn.lock().await),
            false => None,
        };
        let mut candidate = Candidate {
            pod,
            devices,
            given: GivenToPod {
                devices: devices.begin_admission(pod, &to_be_given).await,
                own: Given::new(self, pod),
            },
            to_be_given,
        };
        match topology.scope {
            TopologyManagerScope::Container => self.admit_by_container(topology, &mut candidate).await?,
            TopologyManagerScope::Pod => self.admit_as_a_whole(topology, &mut candidate).await?,
        }
        Ok(candidate.given)
    }

    async fn admit_by_container(
        &self,
        topology: &TopologyPolicy,
        candidate: &mut Candidate<'_>,
    ) -> Result<(), AllocationError> {
        for (_, container) in all_containers(candidate.pod) {
            let (pod, nodes) = (candidate.pod, &topology.nodes.numbers);
            let of_devices = candidate.devices.container_hints(pod, container, nodes);
            let place = self.place(
                topology,
                of_devices,
                self.container_hints(pod, container),
                CONTAINER,
            )?;
            self.give(candidate, container, place).await?;
            if topology.guarantees() {
                self.metrics.aligned.of(&[CONTAINER, NUMA_NODE]).inc();
            }
        }
        Ok(())
    }

    async fn admit_as_a_whole(
        &self,
        topology: &TopologyPolicy,
        candidate: &mut Candidate<'_>,
    ) -> Result<(), AllocationError> {
        let pod = candidate.pod;
        let of_devices = candidate.devices.pod_hints(pod, &topology.nodes.numbers);
        let place = self.place(topology, of_devices, self.pod_hints(pod), POD)?;
        for (_, container) in all_containers(pod) {
            self.give(candidate, container, place).await?;
        }
        if topology.guarantees() {
            self.metrics.aligned.of(&[POD, NUMA_NODE]).inc();
        }
        Ok(())
    }

    /// The best place of all resources.
    fn place(
        &self,
        topology: &TopologyPolicy,
        of_devices: Hints,
        of_others: Vec<Hints>,
        scope: &str,
    ) -> Result<Hint, AllocationError> {
        let providers: Vec<Hints> = std::iter::once(of_devices).chain(of_others).collect();
        let (place, is_admitted) = topology.merge(&providers);
        if is_admitted {
            return Ok(place);
        }
        if topology.guarantees() {
            self.metrics.not_aligned.of(&[scope, NUMA_NODE]).inc();
        }
        Err(AllocationError::TopologyAffinity)
    }

    async fn give(
        &self,
        candidate: &mut Candidate<'_>,
        container: &Container,
        place: Hint,
    ) -> Result<(), AllocationError> {
        let pod = candidate.pod;
        let gets_devices = candidate.to_be_given.iter().any(|own| own.name == container.name);
        if gets_devices {
            let admission = &mut candidate.given.devices;
            let given = candidate
                .devices
                .allocate_to(pod, container, place.nodes, admission);
            given.await.map_err(AllocationError::Unexpected)?;
        }
        self.allocate_to(pod, container, place, &mut candidate.given.own)
    }

    fn container_hints(&self, pod: &Pod, container: &Container) -> Vec<Hints> {
        let (cpu, memory) = (self.cpu_state.lock(), self.memory_state.lock());
        let cpus = self.cpu.as_ref();
        let cpus = cpus.and_then(|own| own.container_hints(&cpu.table, pod, container));
        let of_memory = self.memory.as_ref();
        let of_memory = of_memory.map(|own| own.container_hints(&memory.table, pod, container));
        vec![cpu_hints(cpus), of_memory.unwrap_or_default()]
    }

    fn pod_hints(&self, pod: &Pod) -> Vec<Hints> {
        let (cpu, memory) = (self.cpu_state.lock(), self.memory_state.lock());
        let cpus = self.cpu.as_ref();
        let cpus = cpus.and_then(|own| own.pod_hints(&cpu.table, pod));
        let of_memory = self.memory.as_ref();
        let of_memory = of_memory.map(|own| own.pod_hints(&memory.table, pod));
        vec![cpu_hints(cpus), of_memory.unwrap_or_default()]
    }
}

fn cpu_hints(hints: Option<Vec<Hint>>) -> Hints {
    hints
        .into_iter()
        .map(|hints| ("cpu".to_owned(), Some(hints)))
        .collect()
}
