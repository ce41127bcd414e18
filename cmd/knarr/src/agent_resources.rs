//! Flags of `knarr agent` about what containers have for themselves, with the kubelet's names and words.

use crate::agent_eviction::duration;
use clap::Args;
use node_kubelet::resource_managers::{
    CpuManagerPolicy, MemoryManagerPolicy, MemoryReservation, ResourceManagersConfig, TopologyManagerPolicy,
    TopologyManagerScope,
};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Args, Debug, Clone)]
pub(crate) struct ResourceArguments {
    /// CPU Manager policy: none, or static, by which containers of Guaranteed pods that request whole processors have them alone
    #[arg(long, default_value = "none", value_parser = cpu_policy)]
    cpu_manager_policy: CpuManagerPolicy,
    /// Options of the CPU Manager policy (e.g. full-pcpus-only=true)
    #[arg(long, value_delimiter = ',', value_parser = option)]
    cpu_manager_policy_options: Vec<(String, String)>,
    /// Period after which processors of running containers are compared with what they are to be
    #[arg(long, default_value = "10s", value_parser = duration)]
    cpu_manager_reconcile_period: Duration,
    /// Processors reserved for the system and Kubernetes (e.g. 0-1,7), in the place of cpu in --system-reserved and --kube-reserved
    #[arg(long, default_value = "")]
    reserved_cpus: String,
    /// Memory Manager policy: None, or Static, by which containers of Guaranteed pods have memory of some NUMA nodes for themselves
    #[arg(long, default_value = "None", value_parser = memory_policy)]
    memory_manager_policy: MemoryManagerPolicy,
    /// Memory reserved on NUMA nodes (e.g. 0:memory=1Gi,hugepages-2Mi=100Mi;1:memory=2Gi); together what the node keeps from pods
    #[arg(long, value_delimiter = ';')]
    reserved_memory: Vec<MemoryReservation>,
    /// Topology Manager policy: none, best-effort, restricted or single-numa-node
    #[arg(long, default_value = "none", value_parser = topology_policy)]
    topology_manager_policy: TopologyManagerPolicy,
    /// Scope of the Topology Manager: container, or pod
    #[arg(long, default_value = "container", value_parser = topology_scope)]
    topology_manager_scope: TopologyManagerScope,
    /// Options of the Topology Manager policy (e.g. prefer-closest-numa-nodes=true)
    #[arg(long, value_delimiter = ',', value_parser = option)]
    topology_manager_policy_options: Vec<(String, String)>,
}

impl From<ResourceArguments> for ResourceManagersConfig {
    fn from(arguments: ResourceArguments) -> Self {
        Self {
            cpu_policy: arguments.cpu_manager_policy,
            cpu_options: options(arguments.cpu_manager_policy_options),
            cpu_reconcile_period: arguments.cpu_manager_reconcile_period,
            reserved_cpus: arguments.reserved_cpus,
            memory_policy: arguments.memory_manager_policy,
            reserved_memory: arguments.reserved_memory,
            topology_policy: arguments.topology_manager_policy,
            topology_scope: arguments.topology_manager_scope,
            topology_options: options(arguments.topology_manager_policy_options),
        }
    }
}

fn options(given: Vec<(String, String)>) -> BTreeMap<String, String> {
    given.into_iter().collect()
}

fn option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("malformed pair, expect string=string: {text}"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn cpu_policy(text: &str) -> Result<CpuManagerPolicy, String> {
    [CpuManagerPolicy::None, CpuManagerPolicy::Static]
        .into_iter()
        .find(|policy| policy.name() == text)
        .ok_or_else(|| format!("unknown policy: {text:?}"))
}

fn topology_policy(text: &str) -> Result<TopologyManagerPolicy, String> {
    TopologyManagerPolicy::named(text).ok_or_else(|| {
        "must be one of: [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]".to_owned()
    })
}

fn topology_scope(text: &str) -> Result<TopologyManagerScope, String> {
    [TopologyManagerScope::Container, TopologyManagerScope::Pod]
        .into_iter()
        .find(|scope| scope.name() == text)
        .ok_or_else(|| "must be one of: \"container\", or \"pod\"".to_owned())
}

fn memory_policy(text: &str) -> Result<MemoryManagerPolicy, String> {
    [MemoryManagerPolicy::None, MemoryManagerPolicy::Static]
        .into_iter()
        .find(|policy| policy.name() == text)
        .ok_or_else(|| format!("unknown policy: {text:?}"))
}
