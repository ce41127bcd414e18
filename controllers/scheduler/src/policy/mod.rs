//! The cluster's policy: how the node of a pod is chosen among those that it fits, changed at run time by the object
//! `default` of the kind SchedulerPolicy (`schedulerpolicies.knarr.dev`).
//!
//! Filters stay as they are, whatever the policy: it takes the place of the scores of the default profile, which decide
//! where the policy has several best nodes ([`ranking`]). [`object`] reads the kind, [`reporter`] writes its status and
//! [`metrics_api`] fetches live usage.

pub(crate) mod metrics_api;
pub mod object;
mod ranking;
pub(crate) mod reporter;
mod scheduling;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;

pub(crate) use ranking::{Nodes, Ranking};
pub(crate) use scheduling::assumed_usage;

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The scores of the profile.
    #[default]
    Default,
    Random,
    /// By name, one after the other.
    RoundRobin,
    /// The smallest share of the CPU in use.
    LeastCpu,
    /// The smallest share of the memory in use.
    LeastMemory,
    /// The largest share of CPU and memory that pods have requested.
    MostAllocated,
}

const NAMES: [(&str, Policy); 6] = [
    ("Default", Policy::Default),
    ("Random", Policy::Random),
    ("RoundRobin", Policy::RoundRobin),
    ("LeastCPU", Policy::LeastCpu),
    ("LeastMemory", Policy::LeastMemory),
    ("MostAllocated", Policy::MostAllocated),
];

impl Policy {
    /// The policy of this name, as the kind has it.
    pub fn named(name: &str) -> Option<Self> {
        let found = NAMES.iter().find(|(own, _)| *own == name);
        found.map(|(_, policy)| *policy)
    }

    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, policy)| *policy == self);
        found.map_or("Default", |(name, _)| name)
    }

    /// Reports whether it needs the usage of nodes.
    pub fn needs_usage(self) -> bool {
        matches!(self, Self::LeastCpu | Self::LeastMemory)
    }
}
