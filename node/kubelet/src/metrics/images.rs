//! Pulls of images.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{ComponentMetrics, Family};
use std::time::Duration;

const PULLS: Family = Family::new(
    "kubelet_image_pull_duration_seconds",
    "[ALPHA] Duration in seconds to pull an image.",
    &["image_size_in_bytes"],
)
.listed(&[
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0,
    2700.0, 3600.0,
]);
const ENSURED: Family = Family::new(
    "kubelet_image_manager_ensure_image_requests_total",
    "[ALPHA] Number of ensure-image requests processed by the kubelet.",
    &["present_locally", "pull_policy", "pull_required"],
);

/// Sizes of images in MiB from which a label counts.
const SIZES: [(u64, &str); 12] = [
    (0, "0-10MB"),
    (10, "10MB-100MB"),
    (100, "100MB-500MB"),
    (500, "500MB-1GB"),
    (1 << 10, "1GB-5GB"),
    (5 << 10, "5GB-10GB"),
    (10 << 10, "10GB-20GB"),
    (20 << 10, "20GB-30GB"),
    (30 << 10, "30GB-40GB"),
    (40 << 10, "40GB-60GB"),
    (60 << 10, "60GB-100GB"),
    (100 << 10, "GT100GB"),
];

pub(crate) fn begin(metrics: &ComponentMetrics) {
    let _ = (metrics.histograms(&PULLS), metrics.counters(&ENSURED));
}

/// Counts a pull of an image of this size.
pub(crate) fn pulled(runtime: &Runtime, bytes: u64, took: Duration) {
    let pulls = runtime.metrics().histograms(&PULLS);
    pulls.of(&[size(bytes)]).observe(took.as_secs_f64());
}

/// Counts a request for an image: by its policy, whether it was there, where that was looked at, and whether it had to be
/// pulled.
pub(crate) fn ensured(runtime: &Runtime, policy: &str, is_present: Option<bool>, is_pulled: bool) {
    let text = |value: bool| if value { "true" } else { "false" };
    let present = is_present.map_or("unknown", text);
    let policy = match policy {
        "Always" => "always",
        "Never" => "never",
        _ => "ifnotpresent",
    };
    let ensured = runtime.metrics().counters(&ENSURED);
    ensured.of(&[present, policy, text(is_pulled)]).inc();
}

fn size(bytes: u64) -> &'static str {
    let above = |(mebibytes, _): &&(u64, &str)| bytes > mebibytes << 20;
    SIZES.iter().rev().find(above).map_or("N/A", |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_pulls_are_counted_by_upstreams_sizes() {
        for (bytes, label) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 << 20, "0-10MB"),
            ((10 << 20) + 1, "10MB-100MB"),
            (3 << 30, "1GB-5GB"),
            (200 << 30, "GT100GB"),
        ] {
            assert_eq!(size(bytes), label, "{bytes}");
        }
    }
}
