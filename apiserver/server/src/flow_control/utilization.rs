//! Upstream's histograms of utilisation: how much of its limit each level uses, over time.

use super::FlowControl;
use super::queue_set::Totals;
use super::timing_histogram::TimingRatio;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

const SEAT_BUCKETS: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUEST_BUCKETS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND_BUCKETS: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];
const READ_WRITE_BUCKETS: &[f64] = &[
    0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];

const PHASES: [&str; 2] = ["waiting", "executing"];
pub(crate) const KINDS: [&str; 2] = ["readOnly", "mutating"];

/// Names and help, in the order of [`Families`].
const FAMILIES: [(&str, &str); 4] = [
    (
        "priority_level_seat_utilization",
        "[ALPHA] Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)",
    ),
    (
        "priority_level_request_utilization",
        "[ALPHA] Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)",
    ),
    (
        "demand_seats",
        "[ALPHA] Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)",
    ),
    (
        "read_vs_write_current_requests",
        "[ALPHA] Observations, at the end of every nanosecond, of the number of requests (as a fraction of the relevant limit) waiting or in regular stage of execution",
    ),
];

/// Utilization of a level's limits.
#[derive(Debug)]
pub(super) struct LevelUtilization {
    pub(super) seats: TimingRatio,
    pub(super) waiting: TimingRatio,
    pub(super) executing: TimingRatio,
    pub(super) demand: TimingRatio,
}

impl LevelUtilization {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            seats: TimingRatio::new(SEAT_BUCKETS, now),
            waiting: TimingRatio::new(REQUEST_BUCKETS, now),
            executing: TimingRatio::new(REQUEST_BUCKETS, now),
            demand: TimingRatio::new(DEMAND_BUCKETS, now),
        }
    }

    /// The limits: how many requests may wait, and the seats that stand for all of the level.
    pub(super) fn limits(&mut self, waiting: usize, seats: usize, now: Duration) {
        self.waiting.set_denominator(as_f64(waiting.max(1)), now);
        for ratio in [&mut self.seats, &mut self.executing, &mut self.demand] {
            ratio.set_denominator(as_f64(seats.max(1)), now);
        }
    }

    pub(super) fn note(&mut self, totals: &Totals, now: Duration) {
        self.seats.set(as_f64(totals.seats_in_use), now);
        self.waiting.set(as_f64(totals.waiting), now);
        self.executing.set(as_f64(totals.executing), now);
        let demand = totals.seats_in_use + totals.seats_waiting;
        self.demand.set(as_f64(demand), now);
    }
}

/// Reading and changing requests that wait or execute, by phase and kind.
#[derive(Debug)]
pub(crate) struct ReadVersusWrite([[Mutex<TimingRatio>; 2]; 2]);

impl ReadVersusWrite {
    pub(super) fn new(now: Duration) -> Self {
        let ratio = || Mutex::new(TimingRatio::new(READ_WRITE_BUCKETS, now));
        Self([[ratio(), ratio()], [ratio(), ratio()]])
    }

    /// Sets the limits of waiting requests and of seats, over all levels.
    pub(super) fn limits(&self, waiting: f64, executing: f64, now: Duration) {
        for (ratios, limit) in self.0.iter().zip([waiting, executing]) {
            for ratio in ratios {
                ratio.lock().set_denominator(limit.max(1.0), now);
            }
        }
    }
}

/// The phase of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    Waiting,
    Executing,
}

/// One request in a phase; dropped, it has left it.
#[derive(Debug)]
pub(crate) struct InPhase {
    control: Arc<FlowControl>,
    phase: Phase,
    kind: usize,
}

impl InPhase {
    /// `kind` is one of [`KINDS`].
    pub(crate) fn begin(control: &Arc<FlowControl>, phase: Phase, kind: &str) -> Self {
        let kind = KINDS.iter().position(|known| *known == kind).unwrap_or(0);
        let own = Self {
            control: Arc::clone(control),
            phase,
            kind,
        };
        own.add(1.0);
        own
    }

    fn add(&self, difference: f64) {
        let now = self.control.monotonic();
        let ratios = &self.control.read_versus_write.0[self.phase as usize];
        ratios[self.kind].lock().add(difference, now);
    }
}

impl Drop for InPhase {
    fn drop(&mut self) {
        self.add(-1.0);
    }
}

/// Reads the histograms when metrics are scraped.
pub(crate) struct UtilizationCollector {
    control: Weak<FlowControl>,
    descriptions: Vec<Desc>,
}

impl UtilizationCollector {
    pub(crate) fn new(control: &Arc<FlowControl>) -> Result<Self, prometheus::Error> {
        let description = |(name, help): &(&str, &str)| {
            Desc::new(full_name(name), (*help).to_owned(), Vec::new(), HashMap::new())
        };
        Ok(Self {
            control: Arc::downgrade(control),
            descriptions: FAMILIES.iter().map(description).collect::<Result<_, _>>()?,
        })
    }
}

fn full_name(name: &str) -> String {
    format!("apiserver_flowcontrol_{name}")
}

type Families = [Vec<Metric>; FAMILIES.len()];

impl Collector for UtilizationCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(control) = self.control.upgrade() else {
            return Vec::new();
        };
        let now = control.monotonic();
        let mut families = Families::default();
        control.with_levels(|levels| {
            for state in levels.values() {
                let mut requests = state.level.requests.lock();
                of_level(&mut families, &state.level.name, requests.utilization(), now);
            }
        });
        for (ratios, phase) in control.read_versus_write.0.iter().zip(PHASES) {
            for (ratio, kind) in ratios.iter().zip(KINDS) {
                let labels = [("phase", phase), ("request_kind", kind)];
                families[3].push(metric(&mut ratio.lock(), labels, now));
            }
        }
        let family = |((name, help), metrics): (&(&str, &str), Vec<Metric>)| {
            let mut family = MetricFamily::default();
            family.set_name(full_name(name));
            family.set_help((*help).to_owned());
            family.set_field_type(MetricType::HISTOGRAM);
            family.set_metric(metrics);
            family
        };
        FAMILIES.iter().zip(families).map(family).collect()
    }
}

fn of_level(families: &mut Families, level: &str, used: &mut LevelUtilization, now: Duration) {
    let [seats, requests, demand, _] = families;
    let phased = |phase| [("phase", phase), ("priority_level", level)];
    seats.push(metric(&mut used.seats, phased("executing"), now));
    requests.push(metric(&mut used.waiting, phased("waiting"), now));
    requests.push(metric(&mut used.executing, phased("executing"), now));
    demand.push(metric(&mut used.demand, [("priority_level", level)], now));
}

fn metric<const N: usize>(ratio: &mut TimingRatio, labels: [(&str, &str); N], now: Duration) -> Metric {
    let pair = |(name, value): (&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    let mut metric = Metric::from_label(labels.map(pair).into());
    metric.set_histogram(ratio.histogram(now));
    metric
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests are far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
