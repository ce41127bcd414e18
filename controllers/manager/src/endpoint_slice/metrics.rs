//! `endpoint_slice_controller_*` (upstream's `k8s.io/endpointslice/metrics`).

use super::MAX_ENDPOINTS;
use super::plan::Plan;
use super::view::SliceView;
use machinery_client::Informer;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histogram, Histograms, Reading};
use std::collections::BTreeMap;

const ADDED: Family = Family::new(
    "endpoint_slice_controller_endpoints_added_per_sync",
    "[BETA] Number of endpoints added on each Service sync",
    &[],
)
.exponential(2.0, 2.0, 15);
const REMOVED: Family = Family::new(
    "endpoint_slice_controller_endpoints_removed_per_sync",
    "[BETA] Number of endpoints removed on each Service sync",
    &[],
)
.exponential(2.0, 2.0, 15);
const ENDPOINTS: Family = Family::new(
    "endpoint_slice_controller_endpoints_desired",
    "[BETA] Number of endpoints desired",
    &[],
);
const SLICES: Family = Family::new(
    "endpoint_slice_controller_num_endpoint_slices",
    "[BETA] Number of EndpointSlices",
    &[],
);
const DESIRED_SLICES: Family = Family::new(
    "endpoint_slice_controller_desired_endpoint_slices",
    "[BETA] Number of EndpointSlices that would exist with perfect endpoint allocation",
    &[],
);
/// Of ours.
pub(super) const SHORT: Family = Family::new(
    "knarr_endpoint_slice_services_short_of_room",
    "Services that have fewer endpoints in EndpointSlices than pods, as their namespace has its share.",
    &["namespace"],
);
pub(super) const CHANGES: Family = Family::new(
    "endpoint_slice_controller_changes",
    "[ALPHA] Number of EndpointSlice changes",
    &["operation"],
);
const CHANGED: Family = Family::new(
    "endpoint_slice_controller_endpointslices_changed_per_sync",
    "[ALPHA] Number of EndpointSlices changed on each Service sync",
    &["topology", "traffic_distribution"],
);
const SYNCS: Family = Family::new(
    "endpoint_slice_controller_syncs",
    "[ALPHA] Number of EndpointSlice syncs",
    &["result"],
);

/// The vectors, and what is read of the slices there are.
pub(super) struct SliceMetrics {
    added: Histogram,
    removed: Histogram,
    changed: Histograms,
    syncs: Counters,
    _readings: [Reading; 3],
}

impl SliceMetrics {
    pub(super) fn new(metrics: &ComponentMetrics, slices: &Informer<SliceView>) -> Self {
        let read = |family: &Family, figure: fn(&Figures) -> usize| {
            let slices = slices.clone();
            metrics.read(family, move |samples| {
                #[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
                samples.add(&[], figure(&Figures::of(&slices)) as f64);
            })
        };
        Self {
            added: metrics.histograms(&ADDED).of(&[]),
            removed: metrics.histograms(&REMOVED).of(&[]),
            changed: metrics.histograms(&CHANGED),
            syncs: metrics.counters(&SYNCS),
            _readings: [
                read(&ENDPOINTS, |figures| figures.endpoints),
                read(&SLICES, |figures| figures.slices),
                read(&DESIRED_SLICES, |figures| figures.desired),
            ],
        }
    }

    /// A look has ended: `success`, `stale` or `error`.
    pub(super) fn synced(&self, result: &str) {
        self.syncs.of(&[result]).inc();
    }

    #[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
    pub(super) fn planned(&self, plan: &Plan) {
        self.added.observe(plan.added as f64);
        self.removed.observe(plan.removed as f64);
        let changed = plan.create.len() + plan.update.len() + plan.delete.len();
        self.changed.of(&["Disabled", ""]).observe(changed as f64);
    }
}

/// Numbers over all slices.
#[derive(Default)]
struct Figures {
    endpoints: usize,
    slices: usize,
    /// As few as there could be.
    desired: usize,
}

impl Figures {
    fn of(slices: &Informer<SliceView>) -> Self {
        let mut figures = Self::default();
        let mut groups: BTreeMap<_, usize> = BTreeMap::new();
        slices.for_each(|slice| {
            figures.endpoints += slice.endpoints.len();
            figures.slices += 1;
            let service = slice.header.label(super::SERVICE_NAME).unwrap_or("").to_owned();
            let group = (
                slice.namespace().to_owned(),
                service,
                slice.address_type.clone(),
                slice.ports.clone(),
            );
            *groups.entry(group).or_default() += slice.endpoints.len();
        });
        let fewest = |endpoints: &usize| endpoints.div_ceil(MAX_ENDPOINTS).max(1);
        figures.desired = groups.values().map(fewest).sum();
        figures
    }
}
