//! Durations of admission, by plugin and as a whole, under upstream's names.

use apiserver_admission::{Observer, Operation, PluginRun, Step};
use machinery_runtime::Runtime;
use prometheus::{Histogram, HistogramOpts, HistogramVec, Registry};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Upstream's buckets, in seconds.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const OPERATIONS: usize = 4;

/// Histograms of one plugin, or of the whole, by step, operation and rejection: found once, then observed without a look
/// at their labels.
type Cells = [OnceLock<Histogram>; 2 * OPERATIONS * 2];

/// Told by the plugins' chain.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    runtime: Runtime,
    steps: HistogramVec,
    plugins: HistogramVec,
    step_cells: Cells,
    plugin_cells: Vec<Cells>,
}

fn histograms(name: &str, help: &str, labels: &[&str]) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
    HistogramVec::new(options, labels)
}

impl AdmissionMetrics {
    /// `plugins` is how many there are.
    pub(crate) fn new(
        registry: &Registry,
        runtime: Runtime,
        plugins: usize,
    ) -> Result<Arc<Self>, prometheus::Error> {
        let metrics = Self {
            runtime,
            steps: histograms(
                "apiserver_admission_step_admission_duration_seconds",
                "Seconds that all admission plugins took, by step, operation and rejection.",
                &["type", "operation", "rejected"],
            )?,
            plugins: histograms(
                "apiserver_admission_controller_admission_duration_seconds",
                "Seconds that an admission plugin took, by step, operation and rejection.",
                &["name", "type", "operation", "rejected"],
            )?,
            step_cells: Cells::default(),
            plugin_cells: (0..plugins).map(|_| Cells::default()).collect(),
        };
        registry.register(Box::new(metrics.steps.clone()))?;
        registry.register(Box::new(metrics.plugins.clone()))?;
        Ok(Arc::new(metrics))
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
        let (cell, [of_step, of_operation, of_rejection]) = labels(ran.step, operation, ran.rejected);
        let Some(cell) = self.plugin_cells.get(ran.at).and_then(|cells| cells.get(cell)) else {
            return;
        };
        let all = [ran.name, of_step, of_operation, of_rejection];
        cell.get_or_init(|| self.plugins.with_label_values(&all))
            .observe(took.as_secs_f64());
    }

    fn step(&self, step: Step, rejected: bool, operation: Operation, took: Duration) {
        let (cell, all) = labels(step, operation, rejected);
        if let Some(cell) = self.step_cells.get(cell) {
            cell.get_or_init(|| self.steps.with_label_values(&all))
                .observe(took.as_secs_f64());
        }
    }
}
