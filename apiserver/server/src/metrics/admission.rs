//! Durations of admission, by plugin and as a whole, under upstream's names.

use super::families::{Families, HistogramCells};
use apiserver_admission::{Observer, Operation, PluginRun, Step};
use machinery_runtime::Runtime;
use prometheus::{HistogramOpts, HistogramVec};
use std::sync::Arc;
use std::time::Duration;

/// Upstream's buckets, in seconds.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const OPERATIONS: usize = 4;
/// Series of one plugin, or of the whole: by step, operation and rejection.
const PLACES: usize = 2 * OPERATIONS * 2;

/// Reported by the plugins' chain.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    runtime: Runtime,
    steps: Arc<HistogramCells>,
    plugins: Arc<HistogramCells>,
}

impl AdmissionMetrics {
    /// `plugins` is how many there are.
    pub(crate) fn new(
        families: &Families,
        runtime: Runtime,
        plugins: usize,
    ) -> Result<Arc<Self>, prometheus::Error> {
        let histograms = |name: &str, help: &str, labels: &[&str], count| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            families.cells(HistogramVec::new(options, labels)?, count)
        };
        Ok(Arc::new(Self {
            runtime,
            steps: histograms(
                "apiserver_admission_step_admission_duration_seconds",
                "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and step type (validate or admit).",
                &["type", "operation", "rejected"],
                PLACES,
            )?,
            plugins: histograms(
                "apiserver_admission_controller_admission_duration_seconds",
                "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                &["name", "type", "operation", "rejected"],
                plugins * PLACES,
            )?,
        }))
    }
}

fn labels(step: Step, operation: Operation, rejected: bool) -> (usize, [&'static str; 3]) {
    let (first, of_step) = match step {
        Step::Admit => (0, "admit"),
        Step::Validate => (1, "validate"),
    };
    let second = match operation {
        Operation::Create => 0,
        Operation::Update => 1,
        Operation::Delete => 2,
        Operation::Connect => 3,
    };
    let at = (first * OPERATIONS + second) * 2 + usize::from(rejected);
    let of_rejection = if rejected { "true" } else { "false" };
    (at, [of_step, operation.as_str(), of_rejection])
}

impl Observer for AdmissionMetrics {
    fn now(&self) -> Duration {
        self.runtime.monotonic()
    }

    fn plugin(&self, ran: PluginRun, operation: Operation, took: Duration) {
        let (place, [of_step, of_operation, of_rejection]) = labels(ran.step, operation, ran.rejected);
        let all = [ran.name, of_step, of_operation, of_rejection];
        let place = ran.at * PLACES + place;
        self.plugins
            .with(place, &all, |own| own.observe(took.as_secs_f64()));
    }

    fn step(&self, step: Step, rejected: bool, operation: Operation, took: Duration) {
        let (place, all) = labels(step, operation, rejected);
        self.steps
            .with(place, &all, |own| own.observe(took.as_secs_f64()));
    }
}
