//! `statefulset_controller_*` (upstream's `pkg/controller/statefulset/metrics`), read of the sets with each request for metrics.

use crate::views::StatefulSetView;
use machinery_client::Informer;
use machinery_runtime::metrics::{ComponentMetrics, Family, Reading};

const LABELS: &[&str] = &[
    "statefulset_namespace",
    "statefulset_name",
    "pod_management_policy",
];

const MAX_UNAVAILABLE: Family = Family::new(
    "statefulset_controller_statefulset_max_unavailable",
    "[ALPHA] Maximum number of unavailable pods allowed during StatefulSet rolling updates",
    LABELS,
);
const UNAVAILABLE: Family = Family::new(
    "statefulset_controller_statefulset_unavailable_replicas",
    "[ALPHA] Current number of unavailable pods in StatefulSet",
    LABELS,
);

pub(super) fn read(metrics: &ComponentMetrics, sets: &Informer<StatefulSetView>) -> [Reading; 2] {
    let read = |family: &Family, figure: fn(&StatefulSetView) -> Option<i32>| {
        let sets = sets.clone();
        metrics.read(family, move |samples| {
            sets.for_each(|set| {
                let Some(figure) = figure(set) else { return };
                let policy = if set.parallel { "Parallel" } else { "OrderedReady" };
                samples.add(&[set.namespace(), set.name(), policy], figure.into());
            });
        })
    };
    [
        read(&MAX_UNAVAILABLE, |set| {
            set.rolling.map(|rolling| rolling.max_unavailable)
        }),
        read(&UNAVAILABLE, |set| {
            set.rolling
                .map(|_| set.replicas.saturating_sub(set.status.available_replicas).max(0))
        }),
    ]
}
