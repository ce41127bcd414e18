//! Processors and memory of containers, for their configurations and for other programs.

use k8s_openapi::api::core::v1::{Container, Pod};
use node_cri::v1::ContainerConfig;

use super::cpu::policy::CpuPolicy;
use super::cpu::set::CpuSet;
use super::manager::ResourceManagers;
use super::memory::table::Block;
use crate::containers::resources::{Qos, qos, request};
use crate::pods::{all_containers, uid};

impl ResourceManagers {
    /// Reports whether processors are given to containers.
    pub(crate) fn has_cpus(&self) -> bool {
        self.cpu.is_some()
    }

    /// Processors on which a container runs: its own, or the shared ones; empty where the node does not say.
    pub(crate) fn cpus_of(&self, uid: &str, container: &str) -> CpuSet {
        let table = &self.cpu_state.lock().table;
        table.own(uid, container).unwrap_or(&table.shared).clone()
    }

    /// Processors that a container has for itself.
    pub(crate) fn exclusive_cpus_of(&self, uid: &str, container: &str) -> CpuSet {
        let state = self.cpu_state.lock();
        state.table.own(uid, container).cloned().unwrap_or_default()
    }

    /// Processors that containers can have for themselves.
    pub(crate) fn allocatable_cpus(&self) -> CpuSet {
        self.cpu.as_ref().map(CpuPolicy::allocatable).unwrap_or_default()
    }

    /// Memory that a container has for itself.
    pub(crate) fn memory_of(&self, uid: &str, container: &str) -> Vec<Block> {
        let state = self.memory_state.lock();
        state.table.own(uid, container).cloned().unwrap_or_default()
    }

    /// Memory that containers can have for themselves, by NUMA node and kind.
    pub(crate) fn allocatable_memory(&self) -> Vec<Block> {
        let machine = self.memory.iter().flat_map(|memory| &memory.empty);
        let amounts = machine.flat_map(|(number, node)| {
            let kinds = node.memory_map.iter().filter(|(_, own)| own.allocatable > 0);
            kinds.map(|(kind, own)| Block {
                nodes: vec![*number],
                kind: kind.clone(),
                size: own.allocatable,
            })
        });
        amounts.collect()
    }

    /// Puts the processors and NUMA nodes of a container into its configuration, and returns the processors.
    pub(crate) fn put_into(&self, pod: &Pod, container: &Container, config: &mut ContainerConfig) -> CpuSet {
        let cpus = self.cpus_of(uid(pod), &container.name);
        let memory = self.memory_of(uid(pod), &container.name);
        let nodes: CpuSet = memory.iter().flat_map(|block| &block.nodes).copied().collect();
        let nodes: Vec<String> = nodes.iter().map(|node| node.to_string()).collect();
        let resources = config.linux.as_mut().and_then(|linux| linux.resources.as_mut());
        if let Some(resources) = resources {
            resources.cpuset_cpus = cpus.to_string();
            resources.cpuset_mems = nodes.join(",");
        }
        cpus
    }

    /// A container was created with these processors.
    pub(crate) fn created(&self, id: &str, cpus: CpuSet) {
        if self.cpu.is_some() {
            self.applied.lock().insert(id.to_owned(), cpus);
        }
    }

    /// Upstream's sentence where a pod may not have other requests than it was admitted with.
    pub(crate) fn resize_refusal(&self, wanted: &Pod, allocated: &Pod) -> Option<&'static str> {
        if qos(wanted) != Qos::Guaranteed {
            return None;
        }
        let differ = |name: &str| {
            let requests = |pod: &Pod| -> Vec<_> {
                let all = all_containers(pod);
                all.map(|(_, container)| request(container, name)).collect()
            };
            requests(wanted) != requests(allocated)
        };
        if self.cpu.is_some() && differ("cpu") {
            return Some("Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"");
        }
        (self.memory.is_some() && differ("memory"))
            .then_some("Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"")
    }
}
