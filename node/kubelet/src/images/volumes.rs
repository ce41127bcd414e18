//! Counts of volumes of images, under upstream's names.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Volumes of images since the agent began, one for each start of a container that mounts one.
#[derive(Debug, Default)]
pub(crate) struct VolumeCounts {
    requested: AtomicU64,
    mounted: AtomicU64,
    failed: AtomicU64,
}

impl VolumeCounts {
    /// Counts a volume of a container that starts.
    pub(crate) fn requested(&self) {
        self.requested.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a mounted one.
    pub(crate) fn mounted(&self) {
        self.mounted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that could not be mounted.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the families of metrics.
    pub(crate) fn write(&self, out: &mut String) {
        let all = [
            (
                "requested_total",
                "Number of requested image volumes.",
                &self.requested,
            ),
            (
                "mounted_succeed_total",
                "Number of successful image volume mounts.",
                &self.mounted,
            ),
            (
                "mounted_errors_total",
                "Number of failed image volume mounts.",
                &self.failed,
            ),
        ];
        for (name, help, count) in all {
            let name = format!("kubelet_image_volume_{name}");
            let count = count.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "# HELP {name} [BETA] {help}\n# TYPE {name} counter\n{name} {count}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_volumes_are_counted_under_upstreams_names() {
        let counts = VolumeCounts::default();
        counts.requested();
        counts.requested();
        counts.mounted();
        counts.failed();
        let mut out = String::new();
        counts.write(&mut out);
        let lines: Vec<&str> = out.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "kubelet_image_volume_requested_total 2",
            "kubelet_image_volume_mounted_succeed_total 1",
            "kubelet_image_volume_mounted_errors_total 1",
        ];
        assert_eq!(lines, expected);
    }
}
