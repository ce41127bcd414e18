//! `horizontal_pod_autoscaler_controller_*` (upstream's `pkg/controller/podautoscaler/monitor`).

use super::history::History;
use super::object::AutoscalerView;
use super::round::Round;
use machinery_client::Informer;
use machinery_meta::ObjectKey;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Histograms, Reading};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const RECONCILIATION: &[&str] = &["action", "error"];
const COMPUTATION: &[&str] = &["action", "error", "metric_type"];

const RECONCILIATIONS: Family = Family::new(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    "[BETA] Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or \
     'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal \
     errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    RECONCILIATION,
);
const RECONCILIATION_DURATION: Family = Family::new(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    "[BETA] The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either \
     'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that \
     if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    RECONCILIATION,
)
.exponential(0.001, 2.0, 15);
const COMPUTATIONS: Family = Family::new(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    "[BETA] Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, \
     the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to \
     HPA.spec.metrics[*].type",
    COMPUTATION,
);
const COMPUTATION_DURATION: Family = Family::new(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either \
     'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label \
     'metric_type' corresponds to HPA.spec.metrics[*].type",
    COMPUTATION,
)
.exponential(0.001, 2.0, 15);
const AUTOSCALERS: Family = Family::new(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    "[ALPHA] Current number of controlled HPA objects.",
    &[],
);
const DESIRED: Family = Family::new(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    "[ALPHA] Current desired replica count for HPA objects.",
    &["namespace", "hpa_name"],
);

pub(super) type Histories = Arc<Mutex<HashMap<ObjectKey, History>>>;

/// The vectors, and what is read of the autoscalers.
pub(super) struct Monitor {
    reconciliations: Counters,
    reconciliation_duration: Histograms,
    computations: Counters,
    computation_duration: Histograms,
    _readings: [Reading; 2],
}

/// A metric of a look: its type, how the size that it requests compares with the present one, or that it failed, and the
/// time of its fetch, which is what a calculation waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Computation {
    pub(super) kind: String,
    pub(super) asks: Option<Ordering>,
    pub(super) took: Duration,
}

impl Monitor {
    pub(super) fn new(
        metrics: &ComponentMetrics,
        autoscalers: &Informer<AutoscalerView>,
        histories: &Histories,
    ) -> Self {
        let (autoscalers, histories) = (autoscalers.clone(), Arc::clone(histories));
        let count = metrics.read(&AUTOSCALERS, move |samples| {
            let mut count = 0.0;
            autoscalers.for_each(|_| count += 1.0);
            samples.add(&[], count);
        });
        let desired = metrics.read(&DESIRED, move |samples| {
            for (key, history) in &*histories.lock() {
                if let Some(desired) = history.desired {
                    samples.add(&[&key.namespace, &key.name], desired.into());
                }
            }
        });
        Self {
            reconciliations: metrics.counters(&RECONCILIATIONS),
            reconciliation_duration: metrics.histograms(&RECONCILIATION_DURATION),
            computations: metrics.counters(&COMPUTATIONS),
            computation_duration: metrics.histograms(&COMPUTATION_DURATION),
            _readings: [count, desired],
        }
    }

    /// A look has ended after so many seconds.
    pub(super) fn looked(&self, round: &Round<'_>, failed: bool, seconds: f64) {
        let error = match failed {
            true if round.unusable_spec => "spec",
            true => "internal",
            false => "none",
        };
        let labels = [action(round.resize), error];
        self.reconciliations.of(&labels).inc();
        self.reconciliation_duration.of(&labels).observe(seconds);
        for computation in &round.computations {
            let error = if computation.asks.is_some() {
                "none"
            } else {
                "internal"
            };
            let labels = [action(computation.asks), error, &computation.kind];
            self.computations.of(&labels).inc();
            let took = computation.took.as_secs_f64();
            self.computation_duration.of(&labels).observe(took);
        }
    }
}

fn action(asks: Option<Ordering>) -> &'static str {
    match asks {
        Some(Ordering::Greater) => "scale_up",
        Some(Ordering::Less) => "scale_down",
        _ => "none",
    }
}
