//! `endpoint_slice_mirroring_controller_*` (upstream's `pkg/controller/endpointslicemirroring/metrics`).

use super::MirroredView;
use super::plan::Plan;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use machinery_client::Informer;
use machinery_meta::ObjectKey;
use machinery_runtime::metrics::{ComponentMetrics, Family, Gauge, Histogram, Reading};
use parking_lot::Mutex;
use std::collections::BTreeMap;

const ADDED: Family = Family::new(
    "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
    "[ALPHA] Number of endpoints added on each Endpoints sync",
    &[],
)
.exponential(2.0, 2.0, 15);
const UPDATED: Family = Family::new(
    "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
    "[ALPHA] Number of endpoints updated on each Endpoints sync",
    &[],
)
.exponential(2.0, 2.0, 15);
const REMOVED: Family = Family::new(
    "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
    "[ALPHA] Number of endpoints removed on each Endpoints sync",
    &[],
)
.exponential(2.0, 2.0, 15);
const SKIPPED: Family = Family::new(
    "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
    "[ALPHA] Number of addresses skipped on each Endpoints sync due to being invalid or exceeding MaxEndpointsPerSubset",
    &[],
)
.exponential(2.0, 2.0, 15);
const DURATION: Family = Family::new(
    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
    "[ALPHA] Duration of syncEndpoints() in seconds",
    &[],
)
.exponential(0.001, 2.0, 15);
const ENDPOINTS: Family = Family::new(
    "endpoint_slice_mirroring_controller_endpoints_desired",
    "[ALPHA] Number of endpoints desired",
    &[],
);
const SLICES: Family = Family::new(
    "endpoint_slice_mirroring_controller_num_endpoint_slices",
    "[ALPHA] Number of EndpointSlices",
    &[],
);
const DESIRED_SLICES: Family = Family::new(
    "endpoint_slice_mirroring_controller_desired_endpoint_slices",
    "[ALPHA] Number of EndpointSlices that would exist with perfect endpoint allocation",
    &[],
);
pub(super) const CHANGES: Family = Family::new(
    "endpoint_slice_mirroring_controller_changes",
    "[ALPHA] Number of EndpointSlice changes",
    &["operation"],
);

/// The vectors, and what is read of the slices there are.
pub(super) struct MirroringMetrics {
    added: Histogram,
    updated: Histogram,
    removed: Histogram,
    skipped: Histogram,
    duration: Histogram,
    endpoints: Gauge,
    desired_slices: Gauge,
    /// Endpoints and slices that each object requests.
    desired: Mutex<BTreeMap<ObjectKey, (usize, usize)>>,
    _slices: Reading,
}

impl MirroringMetrics {
    pub(super) fn new(metrics: &ComponentMetrics, slices: &Informer<MirroredView>) -> Self {
        let slices = slices.clone();
        Self {
            added: metrics.histograms(&ADDED).of(&[]),
            updated: metrics.histograms(&UPDATED).of(&[]),
            removed: metrics.histograms(&REMOVED).of(&[]),
            skipped: metrics.histograms(&SKIPPED).of(&[]),
            duration: metrics.histograms(&DURATION).of(&[]),
            endpoints: metrics.gauges(&ENDPOINTS).of(&[]),
            desired_slices: metrics.gauges(&DESIRED_SLICES).of(&[]),
            desired: Mutex::default(),
            _slices: metrics.read(&SLICES, move |samples| {
                let mut count = 0.0;
                slices.for_each(|_| count += 1.0);
                samples.add(&[], count);
            }),
        }
    }

    /// A look took so many seconds.
    pub(super) fn took(&self, seconds: f64) {
        self.duration.observe(seconds);
    }

    #[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
    pub(super) fn planned(&self, key: &ObjectKey, plan: &Plan, existing: &[EndpointSlice]) {
        let of = |at: &usize| existing[*at].endpoints.as_deref().unwrap_or_default();
        let mut added: usize = plan.create.iter().map(|own| own.endpoints.len()).sum();
        let mut removed: usize = plan.delete.iter().map(|at| of(at).len()).sum();
        let mut updated = 0;
        for (at, content) in &plan.update {
            let differences = compare(of(at), &content.endpoints);
            added += differences.0;
            updated += differences.1;
            removed += differences.2;
        }
        self.added.observe(added as f64);
        self.updated.observe(updated as f64);
        self.removed.observe(removed as f64);
        self.skipped.observe((plan.invalid + plan.beyond) as f64);
        self.desires(key, Some(plan.desired));
    }

    /// An object requests so many endpoints in so many slices; it is gone where there is no number.
    #[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
    pub(super) fn desires(&self, key: &ObjectKey, now: Option<(usize, usize)>) {
        let mut desired = self.desired.lock();
        let before = match now {
            Some(now) => desired.insert(key.clone(), now),
            None => desired.remove(key),
        };
        let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
        self.endpoints.add(now.0 as f64 - before.0 as f64);
        self.desired_slices.add(now.1 as f64 - before.1 as f64);
    }
}

impl Drop for MirroringMetrics {
    fn drop(&mut self) {
        // The next run begins with nothing.
        self.endpoints.set(0.0);
        self.desired_slices.set(0.0);
    }
}

/// Endpoints added, changed and removed, by address.
fn compare(before: &[Endpoint], after: &[Endpoint]) -> (usize, usize, usize) {
    let mut old: BTreeMap<&[String], &Endpoint> = before.iter().map(|own| (&*own.addresses, own)).collect();
    let (mut added, mut updated) = (0, 0);
    for endpoint in after {
        match old.remove(&*endpoint.addresses) {
            None => added += 1,
            Some(own) => updated += usize::from(own != endpoint),
        }
    }
    (added, updated, old.len())
}
