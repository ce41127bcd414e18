//! The plugins, one file each, and their rows in the order in which upstream asks them.
//!
//! To add one: its file, and a row here with the weight of its score (0 where it has none).

mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

pub(crate) use pod_topology_spread::Spread;

use crate::framework::{Plugin, PluginRegistration};

/// The default profile.
pub fn default_rows() -> Vec<PluginRegistration> {
    vec![
        row(scheduling_gates::SchedulingGates, 0),
        row(node_name::NodeName, 0),
        row(node_unschedulable::NodeUnschedulable, 0),
        row(taint_toleration::TaintToleration, 3),
        row(node_affinity::NodeAffinity, 2),
        row(node_ports::NodePorts, 0),
        row(node_resources_fit::NodeResourcesFit, 1),
        row(volume_restrictions::VolumeRestrictions, 0),
        row(node_volume_limits::NodeVolumeLimits, 0),
        row(volume_binding::VolumeBinding, 1),
        row(volume_zone::VolumeZone, 0),
        row(pod_topology_spread::PodTopologySpread, 2),
        row(inter_pod_affinity::InterPodAffinity, 2),
        row(
            node_resources_balanced_allocation::NodeResourcesBalancedAllocation,
            1,
        ),
        row(image_locality::ImageLocality, 1),
    ]
}

fn row(plugin: impl Plugin + 'static, weight: i64) -> PluginRegistration {
    PluginRegistration {
        plugin: Box::new(plugin),
        weight,
    }
}
