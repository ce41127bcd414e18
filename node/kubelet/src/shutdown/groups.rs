//! Pods that end together. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::config::ShutdownPeriod;
use crate::pods::spec;

/// Pods of a period.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) period: ShutdownPeriod,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// Pods by the highest period that begins at or below their priority; those below all are of the lowest. Periods come from the
/// lowest priority to the highest, as the groups do, and those without pods are left out.
pub(super) fn groups(periods: &[ShutdownPeriod], pods: Vec<Arc<Pod>>) -> Vec<Group> {
    let mut groups: Vec<Group> = periods
        .iter()
        .map(|period| Group {
            period: *period,
            pods: Vec::new(),
        })
        .collect();
    for pod in pods {
        let priority = spec(&pod).priority.unwrap_or(0);
        // The first of several of one priority, as upstream's search finds it.
        let exact = groups.iter().position(|group| group.period.priority == priority);
        let below = || groups.iter().rposition(|group| group.period.priority < priority);
        let place = exact.or_else(below).unwrap_or(0);
        if let Some(group) = groups.get_mut(place) {
            group.pods.push(pod);
        }
    }
    groups.retain(|group| !group.pods.is_empty());
    groups
}
