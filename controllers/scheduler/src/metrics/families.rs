//! The families: upstream's names, help and buckets (`pkg/scheduler/metrics/metrics.go`).

use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    exponential_buckets,
};

#[derive(Debug)]
pub(super) struct Families {
    pub(super) attempts: IntCounterVec,
    pub(super) attempt_durations: HistogramVec,
    pub(super) algorithm_durations: Histogram,
    pub(super) event_durations: HistogramVec,
    pub(super) preemption_victims: Histogram,
    pub(super) preemption_attempts: IntCounter,
    pub(super) preemptions: IntCounterVec,
    pub(super) preemption_durations: HistogramVec,
    pub(super) pending: IntGaugeVec,
    pub(super) entities: IntGaugeVec,
    pub(super) in_flight_events: IntGaugeVec,
    pub(super) sli_durations: HistogramVec,
    pub(super) pod_attempts: Histogram,
    pub(super) after_flush: IntCounter,
    pub(super) point_durations: HistogramVec,
    pub(super) plugin_durations: HistogramVec,
    pub(super) incoming: IntCounterVec,
    pub(super) incoming_entities: IntCounterVec,
    pub(super) goroutines: IntGaugeVec,
    pub(super) cache: IntGaugeVec,
    pub(super) unschedulable: IntGaugeVec,
    pub(super) evaluations: IntCounterVec,
    pub(super) volume_errors: IntCounterVec,
    pub(super) conditions_allocations: IntCounterVec,
    pub(super) conditions_durations: HistogramVec,
}

impl Families {
    #[allow(clippy::too_many_lines, reason = "a table")]
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            attempts: counters(
                "schedule_attempts_total",
                "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be \
                 scheduled, while 'error' means an internal scheduler problem.",
                &["result", "profile"],
            )?,
            attempt_durations: histograms(
                "scheduling_attempt_duration_seconds",
                "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
                (0.001, 2.0, 15),
                &["result", "profile"],
            )?,
            algorithm_durations: histogram(
                "scheduling_algorithm_duration_seconds",
                "[BETA] Scheduling algorithm latency in seconds",
                (0.001, 2.0, 15),
            )?,
            event_durations: histograms(
                "event_handling_duration_seconds",
                "[ALPHA] Event handling latency in seconds.",
                (0.0001, 2.0, 12),
                &["event"],
            )?,
            preemption_victims: histogram(
                "preemption_victims",
                "[STABLE] Number of selected preemption victims for preemption initiated by a single pod",
                (1.0, 2.0, 7),
            )?,
            preemption_attempts: counter(
                "preemption_attempts_total",
                "[STABLE] Total preemption attempts in the cluster till now",
            )?,
            preemptions: counters(
                "preemption_goroutines_execution_total",
                "[ALPHA] Number of preemption goroutines executed.",
                &["result"],
            )?,
            preemption_durations: histograms(
                "preemption_goroutines_duration_seconds",
                "[ALPHA] Duration in seconds for running goroutines for the preemption.",
                (0.01, 2.0, 20),
                &["result"],
            )?,
            pending: gauges(
                "pending_pods",
                "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' \
                 means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulableEntities that the \
                 scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the \
                 scheduler never attempted to schedule because they are gated.",
                &["queue"],
            )?,
            entities: gauges(
                "queued_entities",
                "[ALPHA] Number of queued scheduling entities ('pod' or 'podgroup'; 'pod' stands for individual pods that \
                 are not members of any podgroup) by the queue type.",
                &["queue", "type"],
            )?,
            in_flight_events: gauges(
                "inflight_events",
                "[ALPHA] Number of events currently tracked in the scheduling queue.",
                &["event"],
            )?,
            sli_durations: histograms(
                "pod_scheduling_sli_duration_seconds",
                "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might \
                 involve multiple scheduling attempts.",
                (0.01, 2.0, 20),
                &["attempts"],
            )?,
            pod_attempts: histogram(
                "pod_scheduling_attempts",
                "[STABLE] Number of attempts to successfully schedule a pod.",
                (1.0, 2.0, 5),
            )?,
            after_flush: counter(
                "pod_scheduled_after_flush_total",
                "[ALPHA] Number of pods that were successfully scheduled after being flushed from unschedulableEntities \
                 due to timeout. This metric helps detect potential queueing hint misconfigurations or event handling \
                 issues.",
            )?,
            point_durations: histograms(
                "framework_extension_point_duration_seconds",
                "[STABLE] Latency for running all plugins of a specific extension point.",
                (0.0001, 2.0, 12),
                &["extension_point", "status", "profile"],
            )?,
            plugin_durations: histograms(
                "plugin_execution_duration_seconds",
                "[BETA] Duration for running a plugin at a specific extension point.",
                (0.00001, 1.5, 20),
                &["plugin", "extension_point", "status"],
            )?,
            incoming: counters(
                "queue_incoming_pods_total",
                "[STABLE] Number of pods added to scheduling queues by event and queue type.",
                &["queue", "event"],
            )?,
            incoming_entities: counters(
                "queue_incoming_entities_total",
                "[ALPHA] Number of entities added to scheduling queues by event, queue type, and entity type. Entity types \
                 are either 'pod' (for individual pods that are not members of any podgroup) or 'podgroup'.",
                &["queue", "event", "type"],
            )?,
            goroutines: gauges(
                "goroutines",
                "[BETA] Number of running goroutines split by the work they do such as binding.",
                &["operation"],
            )?,
            cache: gauges(
                "cache_size",
                "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
                &["type"],
            )?,
            unschedulable: gauges(
                "unschedulable_pods",
                "[BETA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for \
                 all plugins that caused it to not schedule and so this metric have meaning only when broken down by \
                 plugin.",
                &["plugin", "profile"],
            )?,
            evaluations: counters(
                "plugin_evaluation_total",
                "[BETA] Number of attempts to schedule pods by each plugin and the extension point (available only in \
                 PreFilter, Filter, PreScore, and Score).",
                &["plugin", "extension_point", "profile"],
            )?,
            volume_errors: counters(
                "volume_scheduling_stage_error_total",
                "[ALPHA] Volume scheduling stage error count",
                &["operation"],
            )?,
            conditions_allocations: counters(
                "dra_bindingconditions_allocations_total",
                "[ALPHA] Number of allocations using devices with BindingConditions, counted per driver per scheduling \
                 attempt",
                &["profile", "driver", "status"],
            )?,
            conditions_durations: histograms(
                "dra_bindingconditions_wait_duration_seconds",
                "[ALPHA] Time in seconds spent waiting for BindingConditions to be satisfied during PreBind.",
                (0.1, 2.0, 14),
                &["profile", "driver", "status"],
            )?,
        })
    }

    pub(super) fn all(&self) -> [&dyn Collector; 25] {
        [
            &self.attempts,
            &self.attempt_durations,
            &self.algorithm_durations,
            &self.event_durations,
            &self.preemption_victims,
            &self.preemption_attempts,
            &self.preemptions,
            &self.preemption_durations,
            &self.pending,
            &self.entities,
            &self.in_flight_events,
            &self.sli_durations,
            &self.pod_attempts,
            &self.after_flush,
            &self.point_durations,
            &self.plugin_durations,
            &self.incoming,
            &self.incoming_entities,
            &self.goroutines,
            &self.cache,
            &self.unschedulable,
            &self.evaluations,
            &self.volume_errors,
            &self.conditions_allocations,
            &self.conditions_durations,
        ]
    }
}

fn name(of: &str) -> String {
    format!("scheduler_{of}")
}

fn counter(of: &str, help: &str) -> Result<IntCounter, Error> {
    IntCounter::new(name(of), help)
}

fn counters(of: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
    IntCounterVec::new(Opts::new(name(of), help), labels)
}

fn gauges(of: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
    IntGaugeVec::new(Opts::new(name(of), help), labels)
}

/// Buckets by their first bound, the factor to the next, and their number.
type Buckets = (f64, f64, usize);

fn options(of: &str, help: &str, (first, factor, count): Buckets) -> Result<HistogramOpts, Error> {
    let buckets = exponential_buckets(first, factor, count)?;
    Ok(HistogramOpts::new(name(of), help).buckets(buckets))
}

fn histogram(of: &str, help: &str, buckets: Buckets) -> Result<Histogram, Error> {
    Histogram::with_opts(options(of, help, buckets)?)
}

fn histograms(of: &str, help: &str, buckets: Buckets, labels: &[&str]) -> Result<HistogramVec, Error> {
    HistogramVec::new(options(of, help, buckets)?, labels)
}
