//! Metrics of the scheduler under upstream's names.
//!
//! The scheduler counts for itself what happens often ([`crate::tallies`], the questions put to plugins) and hands it on
//! after each turn; a scrape reads what was handed on last. Labels are names of plugins, points, events and profiles: their number is
//! that of the configuration. Names of
//! drivers are bounded in number.

mod families;
#[cfg(test)]
mod tests;

use crate::framework::PluginRegistration;
use crate::meter::{ExtensionPoint, Run};
use crate::profile::Profiles;
use crate::tallies::QueueTallies;
use families::Families;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Attempts beyond which their number is not distinguished.
const MANY_ATTEMPTS: u32 = 15;
/// Drivers of devices that have labels of their own.
const MAX_DRIVERS: usize = 64;

/// Counters, gauges and histograms; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Families>, Arc<Mutex<BTreeSet<Box<str>>>>);

/// End of an attempt to schedule a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    Scheduled,
    Unschedulable,
    Error,
}

impl AttemptResult {
    fn label(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// Facts of a pod that has its node.
#[derive(Debug, Clone, Copy)]
pub struct Scheduled {
    pub attempts: u32,
    /// Since the first attempt began.
    pub since_first_attempt: Duration,
    /// It was tried again after a long while, though nothing seemed to have happened.
    pub after_flush: bool,
}

/// Nodes and pods that the scheduler knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSizes {
    pub nodes: usize,
    pub pods: usize,
    pub assumed_pods: usize,
}

impl Metrics {
    pub fn new() -> Result<Self, prometheus::Error> {
        Ok(Self(Arc::new(Families::new()?), Arc::default()))
    }

    /// Counts an attempt, and its time with binding.
    pub fn attempt(&self, profile: &str, result: AttemptResult, took: Duration) {
        let labels = [result.label(), profile];
        self.0.attempts.with_label_values(&labels).inc();
        let durations = self.0.attempt_durations.with_label_values(&labels);
        durations.observe(took.as_secs_f64());
    }

    pub fn scheduled(&self, pod: Scheduled) {
        let attempts = match pod.attempts {
            MANY_ATTEMPTS.. => "15+".to_owned(),
            few => few.to_string(),
        };
        let durations = self.0.sli_durations.with_label_values(&[&attempts]);
        durations.observe(pod.since_first_attempt.as_secs_f64());
        self.0.pod_attempts.observe(pod.attempts.into());
        if pod.after_flush {
            self.0.after_flush.inc();
        }
    }

    /// The time that placing took.
    pub fn placed(&self, took: Duration) {
        self.0.algorithm_durations.observe(took.as_secs_f64());
    }

    /// Runs of extension points and of plugins.
    pub fn ran(&self, profile: &str, runs: &[Run]) {
        for run in runs {
            let (point, seconds) = (run.point.name(), run.took.as_secs_f64());
            let durations = match run.plugin {
                None => {
                    let labels = [point, run.status, profile];
                    self.0.point_durations.with_label_values(&labels)
                }
                Some(plugin) => {
                    let labels = [plugin, point, run.status];
                    self.0.plugin_durations.with_label_values(&labels)
                }
            };
            durations.observe(seconds);
        }
    }

    pub fn point_ran(&self, profile: &str, point: ExtensionPoint, status: &'static str, took: Duration) {
        let labels = [point.name(), status, profile];
        let durations = self.0.point_durations.with_label_values(&labels);
        durations.observe(took.as_secs_f64());
    }

    pub fn preemption_was_tried(&self, victims: Option<usize>) {
        self.0.preemption_attempts.inc();
        if let Some(victims) = victims {
            #[allow(clippy::cast_precision_loss, reason = "pods of one node")]
            self.0.preemption_victims.observe(victims as f64);
        }
    }

    /// Victims of one pod were deleted, or not all of them.
    pub fn preempted(&self, all: bool, took: Duration) {
        let labels = [if all { "success" } else { "error" }];
        self.0.preemptions.with_label_values(&labels).inc();
        let durations = self.0.preemption_durations.with_label_values(&labels);
        durations.observe(took.as_secs_f64());
    }

    pub fn event_handled(&self, event: &'static str, took: Duration) {
        let durations = self.0.event_durations.with_label_values(&[event]);
        durations.observe(took.as_secs_f64());
    }

    /// Bindings being carried out.
    pub fn set_bindings(&self, count: usize) {
        let gauge = self.0.goroutines.with_label_values(&["binding"]);
        gauge.set(whole(count));
    }

    /// A volume of a pod was not bound.
    pub fn volumes_not_bound(&self) {
        self.0.volume_errors.with_label_values(&["bind"]).inc();
    }

    /// The end of a wait for conditions of a device, by profile, driver and outcome.
    pub fn conditions_waited(
        &self,
        (profile, driver, status): (&str, &str, &'static str),
        took: Duration,
        has_conditions: bool,
    ) {
        let labels = [profile, self.driver(driver), status];
        let durations = self.0.conditions_durations.with_label_values(&labels);
        durations.observe(took.as_secs_f64());
        if has_conditions {
            self.0.conditions_allocations.with_label_values(&labels).inc();
        }
    }

    /// The driver's name as a label: the names of the first [`MAX_DRIVERS`], as objects of the cluster say them.
    fn driver<'a>(&self, name: &'a str) -> &'a str {
        let mut known = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(name) {
            if known.len() >= MAX_DRIVERS {
                return "other";
            }
            known.insert(name.into());
        }
        name
    }

    pub fn set_cache(&self, sizes: CacheSizes) {
        let all = [
            ("nodes", sizes.nodes),
            ("pods", sizes.pods),
            ("assumed_pods", sizes.assumed_pods),
        ];
        for (kind, count) in all {
            self.0.cache.with_label_values(&[kind]).set(whole(count));
        }
    }

    /// Takes over what the queue counted.
    pub fn set_queue(&self, tallies: &mut QueueTallies) {
        for (queue, count) in tallies.lengths() {
            self.0.pending.with_label_values(&[queue]).set(count);
            let entities = self.0.entities.with_label_values(&[queue, "pod"]);
            entities.set(count);
        }
        let tried = self.0.in_flight_events.with_label_values(&["PodPopped"]);
        tried.set(tallies.in_flight());
        for ((queue, event), count) in tallies.take_incoming() {
            self.0.incoming.with_label_values(&[queue, event]).inc_by(count);
            let labels = [queue, event, "pod"];
            self.0.incoming_entities.with_label_values(&labels).inc_by(count);
        }
        for ((plugin, profile), count) in tallies.take_changed_rejectors() {
            let labels = [plugin, &*profile];
            self.0.unschedulable.with_label_values(&labels).set(count);
        }
    }

    /// Takes over the questions put to plugins.
    pub fn add_asked(&self, profiles: &Profiles) {
        for profile in profiles.iter() {
            let plugins = profile.algorithm.plugins();
            let points = [
                (&plugins.pre_filter, ExtensionPoint::PreFilter),
                (&plugins.filter, ExtensionPoint::Filter),
                (&plugins.score, ExtensionPoint::Score),
            ];
            for (rows, point) in points {
                rows.iter()
                    .for_each(|row| self.add_asked_of(row, point, &profile.name));
            }
        }
    }

    fn add_asked_of(&self, row: &PluginRegistration, point: ExtensionPoint, profile: &str) {
        let asked = row.take_asked();
        if asked > 0 {
            let labels = [row.name(), point.name(), profile];
            self.0.evaluations.with_label_values(&labels).inc_by(asked);
        }
    }
}

/// Empties the gauges when the scheduler that sets them ends: another server may lead from then on.
#[derive(Debug)]
pub(crate) struct GaugesOfRun(pub(crate) Metrics);

impl Drop for GaugesOfRun {
    fn drop(&mut self) {
        let families = &self.0.0;
        for gauges in [
            &families.pending,
            &families.entities,
            &families.in_flight_events,
            &families.goroutines,
            &families.cache,
            &families.unschedulable,
        ] {
            gauges.reset();
        }
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Collector for Metrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.all().into_iter().flat_map(|own| own.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.all().into_iter().flat_map(|own| own.collect()).collect()
    }
}
