//! Figures of claims and of drivers' calls, under upstream's names.

use std::sync::Arc;

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Family, Histograms, Reading};
use parking_lot::Mutex;

use super::manager::State;

/// Upstream's `ExponentialBucketsRange(.1, 40, 15)`: each is the one before times the fourteenth root of 400.
const FACTOR: f64 = 1.534_127_404_634_391;
const OPERATIONS: Family = Family::new(
    "dra_operations_duration_seconds",
    "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod \
     starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the \
     success of the operation. The number of failed operations is provided through the histogram's overall count.",
    &["operation_name", "is_error"],
)
.exponential(0.1, FACTOR, 15);
const CALLS: Family = Family::new(
    "dra_grpc_operations_duration_seconds",
    "[ALPHA] Duration in seconds of the DRA gRPC operations",
    &["driver_name", "method_name", "grpc_status_code"],
)
.exponential(0.1, FACTOR, 15);
const IN_USE: Family = Family::new(
    "dra_resource_claims_in_use",
    "[ALPHA] The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and \
     across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total \
     number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use \
     the count for the <any> driver_name.",
    &["driver_name"],
);
/// Label of the claims of all drivers.
const ANY_DRIVER: &str = "<any>";

/// The figures.
#[derive(Debug)]
pub(super) struct DraMetrics {
    /// Durations of preparing all claims of a pod, and of taking that back.
    pub(super) operations: Histograms,
    /// Durations of drivers' calls.
    pub(super) calls: Histograms,
    _in_use: Reading,
}

/// Registers the families.
pub(crate) fn begin(runtime: &Runtime) {
    let metrics = runtime.metrics();
    let _ = (metrics.histograms(&OPERATIONS), metrics.histograms(&CALLS));
    drop(metrics.read(&IN_USE, |_| {}));
}

impl DraMetrics {
    pub(super) fn new(runtime: &Runtime, state: &Arc<Mutex<State>>) -> Self {
        let metrics = runtime.metrics();
        let state = Arc::clone(state);
        Self {
            operations: metrics.histograms(&OPERATIONS),
            calls: metrics.histograms(&CALLS),
            _in_use: metrics.read(&IN_USE, move |samples| {
                let state = state.lock();
                let (by_driver, all) = state.claims.in_use();
                for (driver, count) in by_driver {
                    samples.add(&[driver], f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
                }
                samples.add(&[ANY_DRIVER], f64::from(u32::try_from(all).unwrap_or(u32::MAX)));
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_buckets_are_upstreams() {
        let bounds = CALLS.buckets.bounds();
        assert_eq!(bounds.len(), 15);
        assert!((bounds[14] - 40.0).abs() < 1e-9, "{bounds:?}");
    }
}
