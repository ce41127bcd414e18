//! Flags of `knarr agent` about what of the machine is kept from pods, with the kubelet's names and words.

use clap::Args;
use node_kubelet::eviction::{Thresholds, parse_thresholds};
use node_kubelet::node::reserve::{Amounts, Reserve, parse_amounts};

#[derive(Args, Debug, Clone)]
pub(crate) struct ReserveArguments {
    /// Resources reserved for Kubernetes' own programs (e.g. cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000)
    #[arg(long, default_value = "", value_parser = parse_amounts)]
    kube_reserved: Amounts,
    /// Resources reserved for the other programs of the machine (e.g. cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000)
    #[arg(long, default_value = "", value_parser = parse_amounts)]
    system_reserved: Amounts,
    /// Eviction thresholds, below which pods are evicted (e.g. memory.available<1Gi,nodefs.available<10%); pods may request
    /// what is above [default: upstream's]
    #[arg(long, value_parser = parse_thresholds)]
    eviction_hard: Option<Thresholds>,
    /// Levels of node allocatable that are enforced: none, pods, system-reserved, system-reserved-compressible, kube-reserved, kube-reserved-compressible
    #[arg(long, value_delimiter = ',', default_value = "pods")]
    enforce_node_allocatable: Vec<String>,
    /// Existing cgroup of Kubernetes' own programs
    #[arg(long, default_value = "")]
    kube_reserved_cgroup: String,
    /// Existing cgroup of all other programs
    #[arg(long, default_value = "")]
    system_reserved_cgroup: String,
}

impl From<ReserveArguments> for Reserve {
    fn from(arguments: ReserveArguments) -> Self {
        Self {
            kube: arguments.kube_reserved,
            system: arguments.system_reserved,
            eviction_hard: arguments
                .eviction_hard
                .unwrap_or_else(|| Self::default().eviction_hard),
            enforce: arguments.enforce_node_allocatable,
            kube_cgroup: arguments.kube_reserved_cgroup,
            system_cgroup: arguments.system_reserved_cgroup,
        }
    }
}
