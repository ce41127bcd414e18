//! Requests among the heavy work, and the time it took.

use machinery_runtime::Runtime;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntCounter, IntGaugeVec, Opts};

/// Reads [`Runtime::heavy_figures`] at each request for metrics.
pub(super) struct HeavyWorkCollector {
    runtime: Runtime,
    tasks: IntGaugeVec,
    turns: IntCounter,
    seconds: Counter,
}

impl HeavyWorkCollector {
    pub(super) fn new(runtime: Runtime) -> Result<Self, prometheus::Error> {
        let tasks = Opts::new(
            "knarr_heavy_work_tasks",
            "Heavy requests, by state: waiting or running.",
        );
        let turns = Opts::new("knarr_heavy_work_turns_total", "Time slices of heavy requests.");
        let seconds = Opts::new(
            "knarr_heavy_work_seconds_total",
            "Time for which requests with much to decode or encode were on a thread.",
        );
        Ok(Self {
            runtime,
            tasks: IntGaugeVec::new(tasks, &["state"])?,
            turns: IntCounter::with_opts(turns)?,
            seconds: Counter::with_opts(seconds)?,
        })
    }
}

impl Collector for HeavyWorkCollector {
    fn desc(&self) -> Vec<&Desc> {
        let counters = self.turns.desc().into_iter().chain(self.seconds.desc());
        self.tasks.desc().into_iter().chain(counters).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let figures = self.runtime.heavy_figures();
        for (state, tasks) in [("waiting", figures.waiting), ("running", figures.running)] {
            let tasks = i64::try_from(tasks).unwrap_or(i64::MAX);
            self.tasks.with_label_values(&[state]).set(tasks);
        }
        let more = figures.busy.as_secs_f64() - self.seconds.get();
        self.seconds.inc_by(more.max(0.0));
        let more = figures.turns.saturating_sub(self.turns.get());
        self.turns.inc_by(more);
        let counters = self.turns.collect().into_iter().chain(self.seconds.collect());
        self.tasks.collect().into_iter().chain(counters).collect()
    }
}
