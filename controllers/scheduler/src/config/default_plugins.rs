//! Upstream's default plugins in their order, with the extension points at which they act.

use crate::meter::ExtensionPoint::{
    self, Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
};

/// A plugin that profiles may name.
#[derive(Debug)]
pub(crate) struct DefaultPlugin {
    pub(crate) name: &'static str,
    pub(crate) points: &'static [ExtensionPoint],
    /// Weight of its score, 0 where none is given.
    pub(crate) weight: i64,
}

const FILTER: &[ExtensionPoint] = &[Filter];
const CHECKED_FIRST: &[ExtensionPoint] = &[PreFilter, Filter];
const SCORED: &[ExtensionPoint] = &[PreFilter, Filter, PreScore, Score];

/// Default plugins in the order of their calls.
pub(crate) static DEFAULT_PLUGINS: [DefaultPlugin; 20] = [
    of("SchedulingGates", &[PreEnqueue], 0),
    of("PrioritySort", &[QueueSort], 0),
    of("NodeName", FILTER, 0),
    of("NodeUnschedulable", FILTER, 0),
    of("TaintToleration", &[Filter, PreScore, Score], 3),
    of("NodeAffinity", SCORED, 2),
    of("NodePorts", CHECKED_FIRST, 0),
    of("NodeResourcesFit", SCORED, 1),
    of("VolumeRestrictions", CHECKED_FIRST, 0),
    of("NodeVolumeLimits", CHECKED_FIRST, 0),
    of(
        "VolumeBinding",
        &[PreFilter, Filter, Reserve, PreBind, PreScore, Score],
        0,
    ),
    of("VolumeZone", CHECKED_FIRST, 0),
    of("PodTopologySpread", SCORED, 2),
    of("InterPodAffinity", SCORED, 2),
    of(
        "DynamicResources",
        &[PreEnqueue, PreFilter, Filter, PostFilter, Reserve, PreBind, Score],
        2,
    ),
    of("DefaultPreemption", &[PreEnqueue, PostFilter], 0),
    of("NodeResourcesBalancedAllocation", &[PreScore, Score], 1),
    of("ImageLocality", &[Score], 1),
    of("DefaultBinder", &[Bind], 0),
    of("NodeDeclaredFeatures", CHECKED_FIRST, 0),
];

const fn of(name: &'static str, points: &'static [ExtensionPoint], weight: i64) -> DefaultPlugin {
    DefaultPlugin { name, points, weight }
}

pub(crate) fn default_plugin(name: &str) -> Option<&'static DefaultPlugin> {
    DEFAULT_PLUGINS.iter().find(|own| own.name == name)
}
