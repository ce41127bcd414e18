//! `pv_collector_*` (upstream's `pkg/controller/volume/persistentvolume/metrics`), read of the caches with each request for metrics.

use super::views::{ClaimView, VolumeView};
use machinery_client::Informer;
use machinery_runtime::metrics::{ComponentMetrics, Family, Reading};

const CLASS: &[&str] = &["storage_class"];
const OF_CLAIM: &[&str] = &["namespace", "storage_class", "volume_attributes_class"];

const TOTAL: Family = Family::new(
    "pv_collector_total_pv_count",
    "[ALPHA] Gauge measuring total number of persistent volumes",
    &["plugin_name", "volume_mode"],
);
const BOUND_VOLUMES: Family = Family::new(
    "pv_collector_bound_pv_count",
    "[ALPHA] Gauge measuring number of persistent volume currently bound",
    CLASS,
);
const UNBOUND_VOLUMES: Family = Family::new(
    "pv_collector_unbound_pv_count",
    "[ALPHA] Gauge measuring number of persistent volume currently unbound",
    CLASS,
);
const BOUND_CLAIMS: Family = Family::new(
    "pv_collector_bound_pvc_count",
    "[ALPHA] Gauge measuring number of persistent volume claim currently bound",
    OF_CLAIM,
);
const UNBOUND_CLAIMS: Family = Family::new(
    "pv_collector_unbound_pvc_count",
    "[ALPHA] Gauge measuring number of persistent volume claim currently unbound",
    OF_CLAIM,
);

pub(super) fn read(
    metrics: &ComponentMetrics,
    volumes: &Informer<VolumeView>,
    claims: &Informer<ClaimView>,
) -> [Reading; 5] {
    let all = volumes.clone();
    let total = metrics.read(&TOTAL, move |samples| {
        all.for_each(|volume| {
            let mode = if volume.is_block { "Block" } else { "Filesystem" };
            samples.add(&[&volume.plugin, mode], 1.0);
        });
    });
    let volumes_that = |family: &Family, bound: bool| {
        let volumes = volumes.clone();
        metrics.read(family, move |samples| {
            volumes.for_each(|volume| {
                if (&*volume.phase == "Bound") == bound {
                    samples.add(&[&volume.class], 1.0);
                }
            });
        })
    };
    let claims_that = |family: &Family, bound: bool| {
        let claims = claims.clone();
        metrics.read(family, move |samples| {
            claims.for_each(|claim| {
                if (&*claim.phase == "Bound") == bound {
                    samples.add(&[claim.namespace(), claim.class(), &claim.attributes_class], 1.0);
                }
            });
        })
    };
    [
        total,
        volumes_that(&BOUND_VOLUMES, true),
        volumes_that(&UNBOUND_VOLUMES, false),
        claims_that(&BOUND_CLAIMS, true),
        claims_that(&UNBOUND_CLAIMS, false),
    ]
}
