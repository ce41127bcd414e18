//! Times of the last graceful shutdown.

use jiff::Timestamp;
use machinery_runtime::metrics::{ComponentMetrics, Family};

const STARTED: Family = Family::new(
    "kubelet_graceful_shutdown_start_time_seconds",
    "[ALPHA] Last graceful shutdown start time since unix epoch in seconds",
    &[],
);
const ENDED: Family = Family::new(
    "kubelet_graceful_shutdown_end_time_seconds",
    "[ALPHA] Last graceful shutdown end time since unix epoch in seconds",
    &[],
);

pub(crate) fn begin(metrics: &ComponentMetrics) {
    set(metrics, None, None);
}

/// Sets both times; one that is not known is 0. Upstream's, by a slip, sets the start where it means the end.
#[expect(clippy::cast_precision_loss, reason = "seconds have fewer than 53 bits")]
pub(super) fn set(metrics: &ComponentMetrics, started: Option<Timestamp>, ended: Option<Timestamp>) {
    for (family, time) in [(&STARTED, started), (&ENDED, ended)] {
        let seconds = time.map_or(0, Timestamp::as_second);
        metrics.gauges(family).of(&[]).set(seconds as f64);
    }
}
