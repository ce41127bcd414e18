//! Upstream's `apiserver_flowcontrol_*`.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

const LEVEL: &str = "priority_level";
const SCHEMA: &str = "flow_schema";
/// Upstream's buckets, in seconds.
const DURATION_BUCKETS: [f64; 13] = [
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];
const LENGTH_BUCKETS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0];
const SEAT_BUCKETS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const WATCH_BUCKETS: [f64; 6] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// All of them.
#[derive(Debug, Clone)]
pub(crate) struct FlowControlMetrics {
    rejected: IntCounterVec,
    dispatched: IntCounterVec,
    unaccommodated: IntCounterVec,
    waiting_requests: IntGaugeVec,
    waiting_seats: IntGaugeVec,
    executing_requests: IntGaugeVec,
    executing_seats: IntGaugeVec,
    queue_length: HistogramVec,
    wait: HistogramVec,
    execution: HistogramVec,
    estimated_seats: HistogramVec,
    watch_count: HistogramVec,
    levels: [GaugeVec; LEVEL_GAUGES.len()],
    fair_fraction: Gauge,
}

/// Gauges of a level, in the order of [`LevelFigures`].
const LEVEL_GAUGES: [(&str, &str); 10] = [
    (
        "nominal_limit_seats",
        "[BETA] Nominal number of execution seats configured for each priority level",
    ),
    (
        "lower_limit_seats",
        "[ALPHA] Configured lower bound on number of execution seats available to each priority level",
    ),
    (
        "upper_limit_seats",
        "[ALPHA] Configured upper bound on number of execution seats available to each priority level",
    ),
    (
        "current_limit_seats",
        "[ALPHA] current derived number of execution seats available to each priority level",
    ),
    (
        "demand_seats_high_watermark",
        "[ALPHA] High watermark, over last adjustment period, of demand_seats",
    ),
    (
        "demand_seats_average",
        "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats",
    ),
    (
        "demand_seats_stdev",
        "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats",
    ),
    ("demand_seats_smoothed", "[ALPHA] Smoothed seat demands"),
    ("target_seats", "[ALPHA] Seat allocation targets"),
    ("current_r", "[ALPHA] R(time of last change)"),
];

/// Figures of one level.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LevelFigures {
    pub(super) nominal: f64,
    pub(super) lower: f64,
    pub(super) upper: f64,
    pub(super) current: f64,
    pub(super) high_watermark: f64,
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) smoothed: f64,
    pub(super) target: f64,
    pub(super) current_r: f64,
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(format!("apiserver_flowcontrol_{name}"), help)
}

fn histogram(
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(format!("apiserver_flowcontrol_{name}"), help);
    HistogramVec::new(options.buckets(buckets.to_vec()), labels)
}

impl FlowControlMetrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let both = [LEVEL, SCHEMA];
        let counter = |name, help, labels: &[&str]| IntCounterVec::new(options(name, help), labels);
        let gauge = |name, help| IntGaugeVec::new(options(name, help), &both);
        let level = |at: usize| {
            let (name, help) = LEVEL_GAUGES[at];
            GaugeVec::new(options(name, help), &[LEVEL])
        };
        let levels: Result<Vec<_>, _> = (0..LEVEL_GAUGES.len()).map(level).collect();
        let metrics = Self {
            rejected: counter(
                "rejected_requests_total",
                "[BETA] Number of requests rejected by API Priority and Fairness subsystem",
                &[LEVEL, SCHEMA, "reason"],
            )?,
            dispatched: counter(
                "dispatched_requests_total",
                "[BETA] Number of requests executed by API Priority and Fairness subsystem",
                &both,
            )?,
            unaccommodated: counter(
                "request_dispatch_no_accommodation_total",
                "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
                &both,
            )?,
            waiting_requests: gauge(
                "current_inqueue_requests",
                "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem",
            )?,
            waiting_seats: gauge(
                "current_inqueue_seats",
                "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem",
            )?,
            executing_requests: gauge(
                "current_executing_requests",
                "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
            )?,
            executing_seats: gauge(
                "current_executing_seats",
                "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
            )?,
            queue_length: histogram(
                "request_queue_length_after_enqueue",
                "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
                &LENGTH_BUCKETS,
                &both,
            )?,
            wait: histogram(
                "request_wait_duration_seconds",
                "[BETA] Length of time a request spent waiting in its queue",
                &DURATION_BUCKETS,
                &[LEVEL, SCHEMA, "execute"],
            )?,
            execution: histogram(
                "request_execution_seconds",
                "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
                &DURATION_BUCKETS,
                &[LEVEL, SCHEMA, "type"],
            )?,
            estimated_seats: histogram(
                "work_estimated_seats",
                "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
                &SEAT_BUCKETS,
                &both,
            )?,
            watch_count: histogram(
                "watch_count_samples",
                "[ALPHA] count of watchers for mutating requests in API Priority and Fairness",
                &WATCH_BUCKETS,
                &both,
            )?,
            levels: levels?
                .try_into()
                .unwrap_or_else(|_| unreachable!("as many as there are names")),
            fair_fraction: Gauge::with_opts(options(
                "seat_fair_frac",
                "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it",
            ))?,
        };
        metrics.register(registry)?;
        Ok(metrics)
    }

    fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        for counter in [&self.rejected, &self.dispatched, &self.unaccommodated] {
            registry.register(Box::new(counter.clone()))?;
        }
        let gauges = [
            &self.waiting_requests,
            &self.waiting_seats,
            &self.executing_requests,
            &self.executing_seats,
        ];
        for gauge in gauges {
            registry.register(Box::new(gauge.clone()))?;
        }
        let histograms = [
            &self.queue_length,
            &self.wait,
            &self.execution,
            &self.estimated_seats,
            &self.watch_count,
        ];
        for histogram in histograms {
            registry.register(Box::new(histogram.clone()))?;
        }
        for gauge in &self.levels {
            registry.register(Box::new(gauge.clone()))?;
        }
        registry.register(Box::new(self.fair_fraction.clone()))
    }

    pub(super) fn fair_fraction(&self, fraction: f64) {
        self.fair_fraction.set(fraction);
    }

    pub(super) fn level(&self, name: &str, figures: LevelFigures) {
        let values = [
            figures.nominal,
            figures.lower,
            figures.upper,
            figures.current,
            figures.high_watermark,
            figures.average,
            figures.deviation,
            figures.smoothed,
            figures.target,
            figures.current_r,
        ];
        for (gauge, value) in self.levels.iter().zip(values) {
            gauge.with_label_values(&[name]).set(value);
        }
    }

    pub(super) fn forget_level(&self, name: &str) {
        for gauge in &self.levels {
            // A level that was never shown is gone already.
            let _ = gauge.remove_label_values(&[name]);
        }
    }

    /// The series of a schema with its level.
    pub(super) fn of(&self, level: &str, schema: &str) -> SchemaMetrics {
        let both = [level, schema];
        SchemaMetrics {
            rejected: self.rejected.clone(),
            labels: [level.to_owned(), schema.to_owned()],
            dispatched: self.dispatched.with_label_values(&both),
            unaccommodated: self.unaccommodated.with_label_values(&both),
            waiting_requests: self.waiting_requests.with_label_values(&both),
            waiting_seats: self.waiting_seats.with_label_values(&both),
            executing_requests: self.executing_requests.with_label_values(&both),
            executing_seats: self.executing_seats.with_label_values(&both),
            queue_length: self.queue_length.with_label_values(&both),
            waited: self.wait.with_label_values(&[level, schema, "true"]),
            waited_in_vain: self.wait.with_label_values(&[level, schema, "false"]),
            execution: ["regular", "watch"]
                .map(|kind| self.execution.with_label_values(&[level, schema, kind])),
            estimated_seats: self.estimated_seats.with_label_values(&both),
            watch_count: self.watch_count.with_label_values(&both),
        }
    }
}

/// Looked up once for each schema and not for each request.
#[derive(Debug)]
pub(super) struct SchemaMetrics {
    rejected: IntCounterVec,
    labels: [String; 2],
    pub(super) dispatched: IntCounter,
    pub(super) unaccommodated: IntCounter,
    pub(super) waiting_requests: IntGauge,
    pub(super) waiting_seats: IntGauge,
    pub(super) executing_requests: IntGauge,
    pub(super) executing_seats: IntGauge,
    pub(super) queue_length: Histogram,
    pub(super) waited: Histogram,
    pub(super) waited_in_vain: Histogram,
    /// Of regular requests, and of watches.
    pub(super) execution: [Histogram; 2],
    pub(super) estimated_seats: Histogram,
    pub(super) watch_count: Histogram,
}

impl SchemaMetrics {
    pub(super) fn rejected(&self, reason: &str) {
        let [level, schema] = &self.labels;
        self.rejected
            .with_label_values(&[level.as_str(), schema.as_str(), reason])
            .inc();
    }
}
