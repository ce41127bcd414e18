//! Arguments of the default plugins, complete; `Default` is upstream's.

use crate::object::{NodeAffinity, TopologySpreadConstraint};
use std::collections::BTreeSet;
use std::time::Duration;

/// The arguments of all plugins of a profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PluginArgs {
    pub node_resources_fit: NodeResourcesFitArgs,
    pub node_resources_balanced_allocation: NodeResourcesBalancedAllocationArgs,
    pub pod_topology_spread: PodTopologySpreadArgs,
    pub inter_pod_affinity: InterPodAffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub default_preemption: DefaultPreemptionArgs,
    pub volume_binding: VolumeBindingArgs,
    pub dynamic_resources: DynamicResourcesArgs,
}

/// A resource and what it counts among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceWeight {
    pub name: Box<str>,
    pub weight: i64,
}

/// CPU and memory, alike.
pub(crate) fn default_resources() -> Vec<ResourceWeight> {
    let own = |name: &str| ResourceWeight {
        name: name.into(),
        weight: 1,
    };
    vec![own("cpu"), own("memory")]
}

/// A point of a function from a utilization (0 to 100) to a score (0 to 100); between points it is linear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapePoint {
    pub utilization: i64,
    pub score: i64,
}

/// The score of a utilization (upstream's `BuildBrokenLinearFunction`); zero where there are no points.
pub(crate) fn score_on(shape: &[ShapePoint], utilization: i64) -> i64 {
    let Some(at) = shape.iter().position(|point| utilization <= point.utilization) else {
        return shape.last().map_or(0, |point| point.score);
    };
    let next = shape[at];
    let Some(before) = at.checked_sub(1).map(|before| shape[before]) else {
        return next.score;
    };
    let along = utilization - before.utilization;
    before.score + (next.score - before.score) * along / (next.utilization - before.utilization)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScoringStrategy {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeResourcesFitArgs {
    pub ignored_resources: BTreeSet<Box<str>>,
    pub ignored_resource_groups: BTreeSet<Box<str>>,
    pub strategy: ScoringStrategy,
    pub resources: Vec<ResourceWeight>,
}

impl Default for NodeResourcesFitArgs {
    fn default() -> Self {
        Self {
            ignored_resources: BTreeSet::new(),
            ignored_resource_groups: BTreeSet::new(),
            strategy: ScoringStrategy::LeastAllocated,
            resources: default_resources(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// Each has weight 1.
    pub resources: Vec<ResourceWeight>,
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        Self {
            resources: default_resources(),
        }
    }
}

/// Constraints of pods that have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTopologySpreadArgs {
    /// They are the system's: nodes without a label take part as well.
    pub is_system: bool,
    pub default_constraints: Vec<TopologySpreadConstraint>,
}

impl Default for PodTopologySpreadArgs {
    fn default() -> Self {
        let soft = |(key, max_skew): (&str, i32)| TopologySpreadConstraint {
            max_skew,
            topology_key: key.into(),
            when_unsatisfiable: "ScheduleAnyway".into(),
            ..TopologySpreadConstraint::default()
        };
        let all = [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)];
        Self {
            is_system: true,
            default_constraints: all.map(soft).into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// Weight that a required affinity of a pod already running has for the pods it selects.
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAffinityArgs {
    /// Affinity that every pod of the profile has beside its own.
    pub added_affinity: NodeAffinity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultPreemptionArgs {
    /// The least share of the nodes on which victims are looked for, in percent.
    pub min_candidate_nodes_percentage: usize,
    /// The least number of them.
    pub min_candidate_nodes_absolute: usize,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// Time that the claims of a pod have to be bound.
    pub bind_timeout: Duration,
    /// Score of a storage class by the share of it that the claims use.
    pub shape: Vec<ShapePoint>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        let point = |(utilization, score)| ShapePoint { utilization, score };
        Self {
            bind_timeout: Duration::from_secs(600),
            shape: vec![point((0, 100)), point((100, 0))],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DynamicResourcesArgs {
    /// Time that the search for devices on one node may take; `None` where the allocator's own bound counts.
    pub filter_timeout: Option<Duration>,
    /// Time that a pod waits for conditions of its devices before it is bound.
    pub binding_timeout: Duration,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self {
            filter_timeout: None,
            binding_timeout: Duration::from_secs(600),
        }
    }
}
