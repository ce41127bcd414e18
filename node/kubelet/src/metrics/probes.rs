//! Results of probes, for `/metrics/probes`. A probe's figures end with it.

use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histograms};
use std::time::Duration;

const TOTAL: Family = Family::new(
    "prober_probe_total",
    "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
    &["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
);
const DURATION: Family = Family::new(
    "prober_probe_duration_seconds",
    "[ALPHA] Duration in seconds for a probe response.",
    &["probe_type", "container", "pod", "namespace"],
);

/// Figures of the node's probes.
#[derive(Debug)]
pub(crate) struct ProbeMetrics {
    families: ComponentMetrics,
    total: Counters,
    durations: Histograms,
}

/// Labels of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeLabels {
    pub(crate) kind: &'static str,
    pub(crate) container: String,
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) pod_uid: String,
}

impl Default for ProbeMetrics {
    fn default() -> Self {
        let families = ComponentMetrics::default();
        Self {
            total: families.counters(&TOTAL),
            durations: families.histograms(&DURATION),
            families,
        }
    }
}

impl ProbeMetrics {
    /// The page.
    pub(crate) fn text(&self) -> String {
        self.families.text()
    }

    /// Counts a result. As upstream's, durations are those of probes that succeed.
    pub(crate) fn probed(&self, of: &ProbeLabels, well: bool, took: Duration) {
        self.total.of(&of.with(result(well))).inc();
        if well {
            self.durations.of(&of.plain()).observe(took.as_secs_f64());
        }
    }

    /// Forgets a probe that has ended.
    pub(crate) fn forget(&self, of: &ProbeLabels) {
        for well in [true, false] {
            self.total.forget(&of.with(result(well)));
        }
        self.durations.forget(&of.plain());
    }
}

fn result(well: bool) -> &'static str {
    if well { "successful" } else { "failed" }
}

impl ProbeLabels {
    fn with<'a>(&'a self, result: &'a str) -> [&'a str; 6] {
        let [kind, container, pod, namespace] = self.plain();
        [kind, result, container, pod, namespace, &self.pod_uid]
    }

    fn plain(&self) -> [&str; 4] {
        [self.kind, &self.container, &self.pod, &self.namespace]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_probe_end_with_it() {
        let metrics = ProbeMetrics::default();
        let labels = ProbeLabels {
            kind: "Readiness",
            container: "main".to_owned(),
            pod: "web".to_owned(),
            namespace: "shop".to_owned(),
            pod_uid: "u".to_owned(),
        };
        metrics.probed(&labels, true, Duration::from_millis(20));
        metrics.probed(&labels, false, Duration::from_secs(1));
        let text = metrics.text();
        for sample in [
            r#"prober_probe_total{container="main",namespace="shop",pod="web",pod_uid="u",probe_type="Readiness",result="failed"} 1"#,
            r#"prober_probe_total{container="main",namespace="shop",pod="web",pod_uid="u",probe_type="Readiness",result="successful"} 1"#,
            r#"prober_probe_duration_seconds_count{container="main",namespace="shop",pod="web",probe_type="Readiness"} 1"#,
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
        }
        metrics.forget(&labels);
        assert!(!metrics.text().contains("prober_"));
    }
}
