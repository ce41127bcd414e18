//! Settings of the managers, with upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node::reserve::Reserve;

use super::cpu::options;
use super::cpu::set::CpuSet;
use super::memory::reservation::{self, MemoryReservation};
use super::topology::options::TopologyOptions;

/// Settings of the managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceManagersConfig {
    /// `cpuManagerPolicy`.
    pub cpu_policy: CpuManagerPolicy,
    /// `cpuManagerPolicyOptions`.
    pub cpu_options: BTreeMap<String, String>,
    /// `cpuManagerReconcilePeriod`.
    pub cpu_reconcile_period: Duration,
    /// `reservedSystemCPUs`, in the kernel's list format; empty where none are named.
    pub reserved_cpus: String,
    /// `memoryManagerPolicy`.
    pub memory_policy: MemoryManagerPolicy,
    /// `reservedMemory`.
    pub reserved_memory: Vec<MemoryReservation>,
    /// `topologyManagerPolicy`.
    pub topology_policy: TopologyManagerPolicy,
    /// `topologyManagerScope`.
    pub topology_scope: TopologyManagerScope,
    /// `topologyManagerPolicyOptions`.
    pub topology_options: BTreeMap<String, String>,
}

/// Policy of the CPU manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuManagerPolicy {
    /// All containers share all processors.
    #[default]
    None,
    /// Containers of Guaranteed pods that request whole processors have them alone.
    Static,
}

impl CpuManagerPolicy {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
        }
    }
}

/// Policy of the memory manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryManagerPolicy {
    /// All containers share the memory of all NUMA nodes.
    #[default]
    None,
    /// Containers of Guaranteed pods have memory of some NUMA nodes for themselves.
    Static,
}

impl MemoryManagerPolicy {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Static => "Static",
        }
    }
}

/// Policy of the topology manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TopologyManagerPolicy {
    /// Nothing is aligned.
    #[default]
    None,
    /// A pod runs whatever its places are.
    BestEffort,
    /// A pod runs only if no better places could be thought of.
    Restricted,
    /// A pod runs only on one NUMA node.
    SingleNumaNode,
}

impl TopologyManagerPolicy {
    const ALL: [Self; 4] = [
        Self::None,
        Self::BestEffort,
        Self::Restricted,
        Self::SingleNumaNode,
    ];

    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }

    /// The policy with one of upstream's names.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Scope of an alignment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TopologyManagerScope {
    /// Each container for itself.
    #[default]
    Container,
    /// All containers of a pod.
    Pod,
}

impl TopologyManagerScope {
    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

impl Default for ResourceManagersConfig {
    fn default() -> Self {
        Self {
            cpu_policy: CpuManagerPolicy::default(),
            cpu_options: BTreeMap::new(),
            cpu_reconcile_period: Duration::from_secs(10),
            reserved_cpus: String::new(),
            memory_policy: MemoryManagerPolicy::default(),
            reserved_memory: Vec::new(),
            topology_policy: TopologyManagerPolicy::default(),
            topology_scope: TopologyManagerScope::default(),
            topology_options: BTreeMap::new(),
        }
    }
}

impl ResourceManagersConfig {
    /// Everything wrong with it, in upstream's words.
    pub(crate) fn problems(&self, reserve: &Reserve) -> Vec<String> {
        let mut problems = Vec::new();
        if self.cpu_policy == CpuManagerPolicy::None && !self.cpu_options.is_empty() {
            let names: Vec<&str> = self.cpu_options.keys().map(String::as_str).collect();
            problems.push(format!(
                "None policy: received unsupported options={}",
                names.join(",")
            ));
        }
        if self.cpu_policy == CpuManagerPolicy::Static {
            let wrong = options::parse(&self.cpu_options).err();
            problems.extend(wrong.map(|wrong| format!("new static policy error: {wrong}")));
        }
        problems.extend(reservation::problems(&self.reserved_memory));
        if self.topology_policy != TopologyManagerPolicy::None {
            problems.extend(TopologyOptions::parse(&self.topology_options).err());
        }
        if let Err(error) = CpuSet::parse(&self.reserved_cpus) {
            problems.push(format!(
                "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) {}, error: {error}",
                self.reserved_cpus
            ));
        }
        let has_group = !reserve.system_cgroup.is_empty() || !reserve.kube_cgroup.is_empty();
        if !self.reserved_cpus.is_empty() && has_group {
            problems.push(
                "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
                 (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
                    .to_owned(),
            );
        }
        problems
    }

    /// Named processors take the place of the amounts that are reserved.
    pub fn override_reserve(&self, reserve: &mut Reserve) {
        let named = CpuSet::parse(&self.reserved_cpus).unwrap_or_default();
        if named.is_empty() {
            return;
        }
        reserve.kube.remove("cpu");
        let count = i64::try_from(named.len()).unwrap_or(i64::MAX);
        reserve
            .system
            .insert("cpu".to_owned(), count.saturating_mul(1000));
    }
}
