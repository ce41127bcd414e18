//! Events that end the wait of a rejected pod.

use crate::cluster_events::ClusterEvents;
use crate::framework::{Change, Plugin};
use crate::pod::PodInfo;
use std::sync::Arc;

/// Events that a rejected pod waits for, and the plugins that judge them.
#[derive(Debug, Clone)]
pub struct Wakes {
    events: ClusterEvents,
    plugins: Vec<Arc<dyn Plugin>>,
}

impl From<ClusterEvents> for Wakes {
    /// Every event of these classes.
    fn from(events: ClusterEvents) -> Self {
        Self {
            events,
            plugins: Vec::new(),
        }
    }
}

impl From<Vec<Arc<dyn Plugin>>> for Wakes {
    /// Events that the plugins register for.
    fn from(plugins: Vec<Arc<dyn Plugin>>) -> Self {
        let all = plugins.iter().map(|plugin| plugin.requeue_on());
        Self {
            events: all.fold(ClusterEvents::NONE, ClusterEvents::and),
            plugins,
        }
    }
}

impl Wakes {
    pub fn events(&self) -> ClusterEvents {
        self.events
    }

    /// Reports whether the events may help the pod. Those of an unknown change are judged by their classes alone.
    pub(crate) fn by(&self, events: ClusterEvents, pod: &PodInfo, change: Option<Change<'_>>) -> bool {
        let judges = |plugin: &Arc<dyn Plugin>| {
            plugin.requeue_on().meets(events) && change.is_none_or(|change| plugin.may_help(pod, change))
        };
        self.events.meets(events) && (self.plugins.is_empty() || self.plugins.iter().any(judges))
    }
}
