//! The plugins, one file each.
//!
//! To add one: its file, a line in `make` below, and a row in `config/default_plugins.rs` with the points at which it acts,
//! where the order is that of asking.

mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod resource_allocation;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

use crate::config::{PluginArgs, ProfileConfig};
use crate::framework::{Plugin, PluginRegistration, PluginSet};
use crate::meter::ExtensionPoint;
use std::sync::Arc;

/// The default profile.
pub fn default_plugins() -> PluginSet {
    plugin_set(&ProfileConfig::default())
}

/// The plugins of a profile.
pub fn plugin_set(profile: &ProfileConfig) -> PluginSet {
    let mut made: Vec<Arc<dyn Plugin>> = Vec::new();
    let mut at = |point: ExtensionPoint| {
        let mut registrations = Vec::new();
        for name in profile.plugins.at(point) {
            let known = made.iter().find(|own| own.name() == *name).cloned();
            let Some(plugin) = known.or_else(|| make(name, &profile.args)) else {
                continue;
            };
            registrations.push(PluginRegistration::new(&plugin, profile.plugins.weight(name)));
            made.push(plugin);
        }
        registrations
    };
    PluginSet {
        pre_enqueue: at(ExtensionPoint::PreEnqueue),
        pre_filter: at(ExtensionPoint::PreFilter),
        filter: at(ExtensionPoint::Filter),
        score: at(ExtensionPoint::Score),
    }
}

/// The plugin of this name; `None` for those that are parts of the scheduler itself.
fn make(name: &str, args: &PluginArgs) -> Option<Arc<dyn Plugin>> {
    Some(match name {
        "SchedulingGates" => Arc::new(scheduling_gates::SchedulingGates),
        "NodeName" => Arc::new(node_name::NodeName),
        "NodeUnschedulable" => Arc::new(node_unschedulable::NodeUnschedulable),
        "TaintToleration" => Arc::new(taint_toleration::TaintToleration),
        "NodeAffinity" => Arc::new(node_affinity::NodeAffinity::new(&args.node_affinity)),
        "NodePorts" => Arc::new(node_ports::NodePorts),
        "NodeResourcesFit" => Arc::new(node_resources_fit::NodeResourcesFit::new(
            &args.node_resources_fit,
        )),
        "VolumeRestrictions" => Arc::new(volume_restrictions::VolumeRestrictions),
        "NodeVolumeLimits" => Arc::new(node_volume_limits::NodeVolumeLimits),
        "VolumeBinding" => Arc::new(volume_binding::VolumeBinding::new(&args.volume_binding)),
        "VolumeZone" => Arc::new(volume_zone::VolumeZone),
        "PodTopologySpread" => Arc::new(pod_topology_spread::PodTopologySpread::new(
            &args.pod_topology_spread,
        )),
        "InterPodAffinity" => Arc::new(inter_pod_affinity::InterPodAffinity::new(
            &args.inter_pod_affinity,
        )),
        "NodeResourcesBalancedAllocation" => {
            let args = &args.node_resources_balanced_allocation;
            Arc::new(node_resources_balanced_allocation::NodeResourcesBalancedAllocation::new(args))
        }
        "ImageLocality" => Arc::new(image_locality::ImageLocality),
        "DynamicResources" => Arc::new(dynamic_resources::DynamicResources::new(args.dynamic_resources)),
        "NodeDeclaredFeatures" => Arc::new(node_declared_features::NodeDeclaredFeatures),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plugin that is a part of the scheduler, though it has a point at which plugins of this folder act.
    const PART: &str = "DefaultPreemption";

    #[test]
    fn plugins_of_the_default_profile_are_made_under_their_names() {
        let profile = ProfileConfig::default();
        for point in [
            ExtensionPoint::PreEnqueue,
            ExtensionPoint::PreFilter,
            ExtensionPoint::Filter,
            ExtensionPoint::Score,
        ] {
            for name in profile.plugins.at(point) {
                let made = make(name, &profile.args).map(|plugin| plugin.name());
                assert_eq!(made, (*name != PART).then_some(*name), "{name}");
            }
        }
    }
}
