//! Metrics of the components of an instance, which its server shows on `/metrics` beside its own.
//!
//! A component describes each family once as data ([`Family`]) and is given its vector: a component that begins again
//! is given the one that is there, and its counts go on. Gauges of what a component has in its caches are read when
//! they are scraped ([`ComponentMetrics::read`]) and end with it. A family has at most [`MAX_SERIES`] series, whatever
//! tenants name their namespaces: what comes later counts under [`UNEXPECTED`], as upstream's labels that no list
//! allows.

mod family;
mod read;
mod vector;

pub use family::{Buckets, Described, Family};
/// One series of a family.
pub use prometheus::{Gauge, Histogram, IntCounter as Counter};
pub use read::{Reading, Samples};
pub use vector::{Counters, Gauges, Histograms};

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use read::ReadFamily;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Series of one family, without the one of all others.
pub const MAX_SERIES: usize = 1_000;
/// Value of every label of what has no series of its own.
pub const UNEXPECTED: &str = "unexpected";

/// Families of an instance by name. Components write, the server reads.
#[derive(Default)]
pub struct ComponentMetrics {
    registry: Registry,
    known: Mutex<BTreeMap<&'static str, Known>>,
    process: OnceLock<()>,
}

struct Known {
    family: Family,
    vector: Vector,
}

#[derive(Clone)]
enum Vector {
    Counters(Counters),
    Gauges(Gauges),
    Histograms(Histograms),
    Read(Arc<ReadFamily>),
}

/// One description leads to one kind of vector, whichever caller is first.
const ONE_KIND: &str = "a family is of one kind";
/// Names and labels are constants, which `described` shows to a test.
const VALID: &str = "names and labels of families are valid";

impl fmt::Debug for ComponentMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.known.lock().keys().copied().collect();
        f.debug_struct("ComponentMetrics").field("names", &names).finish()
    }
}

impl ComponentMetrics {
    /// The counters of a family.
    pub fn counters(&self, family: &Family) -> Counters {
        let make = || {
            let vector = IntCounterVec::new(options(family), family.labels).expect(VALID);
            self.register(vector.clone());
            Vector::Counters(Counters::new(vector, family.labels.len()))
        };
        match self.vector(family, make) {
            Vector::Counters(counters) => counters,
            _ => panic!("{ONE_KIND}: {}", family.name),
        }
    }

    /// The gauges of a family, which components set.
    pub fn gauges(&self, family: &Family) -> Gauges {
        let make = || {
            let vector = GaugeVec::new(options(family), family.labels).expect(VALID);
            self.register(vector.clone());
            Vector::Gauges(Gauges::new(vector, family.labels.len()))
        };
        match self.vector(family, make) {
            Vector::Gauges(gauges) => gauges,
            _ => panic!("{ONE_KIND}: {}", family.name),
        }
    }

    /// The histograms of a family.
    pub fn histograms(&self, family: &Family) -> Histograms {
        let make = || {
            let options = HistogramOpts::new(family.name, family.help).buckets(family.buckets.bounds());
            let vector = HistogramVec::new(options, family.labels).expect(VALID);
            self.register(vector.clone());
            Vector::Histograms(Histograms::new(vector, family.labels.len()))
        };
        match self.vector(family, make) {
            Vector::Histograms(histograms) => histograms,
            _ => panic!("{ONE_KIND}: {}", family.name),
        }
    }

    /// Gauges that are read at each scrape, as long as the returned guard lives. Equal labels of several readers are
    /// added up.
    #[must_use = "dropping it ends the reading"]
    pub fn read(&self, family: &Family, read: impl Fn(&mut Samples) + Send + Sync + 'static) -> Reading {
        let make = || {
            let own = Arc::new(ReadFamily::new(*family).expect(VALID));
            self.register(Arc::clone(&own).collector());
            Vector::Read(own)
        };
        match self.vector(family, make) {
            Vector::Read(own) => own.add(Arc::new(read)),
            _ => panic!("{ONE_KIND}: {}", family.name),
        }
    }

    /// Shows the figures of the process beside those of its components.
    pub fn begin_process(&self) {
        let begin = || self.register(prometheus::process_collector::ProcessCollector::for_self());
        self.process.get_or_init(begin);
    }

    fn vector(&self, family: &Family, make: impl FnOnce() -> Vector) -> Vector {
        let mut known = self.known.lock();
        let entry = known.entry(family.name);
        let family = *family;
        let known = entry.or_insert_with(|| Known {
            family,
            vector: make(),
        });
        known.vector.clone()
    }

    fn register(&self, collector: impl Collector + 'static) {
        self.registry
            .register(Box::new(collector))
            .expect("a family is registered once, by its name");
    }

    /// All families that have samples, by name.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// The same in Prometheus' text form.
    pub fn text(&self) -> String {
        let text = TextEncoder::new().encode_to_string(&self.gather());
        text.unwrap_or_else(|error| {
            tracing::error!(%error, "rendering metrics");
            String::new()
        })
    }

    /// Every family that was requested, with and without samples.
    pub fn described(&self) -> Vec<Described> {
        let known = self.known.lock();
        let described = known.values().map(|known| Described {
            family: known.family,
            kind: match known.vector {
                Vector::Counters(_) => "counter",
                Vector::Gauges(_) | Vector::Read(_) => "gauge",
                Vector::Histograms(_) => "histogram",
            },
        });
        described.collect()
    }
}

fn options(family: &Family) -> Opts {
    Opts::new(family.name, family.help)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: Family = Family::new("counts_total", "Counts.", &["namespace"]);
    const DEPTH: Family = Family::new("depth", "Depth.", &["name"]);
    const TOOK: Family = Family::new("took_seconds", "Time.", &[]).exponential(1.0, 2.0, 3);

    fn value(metrics: &ComponentMetrics, name: &str, label: &str) -> Option<f64> {
        let families = metrics.gather();
        let family = families.iter().find(|family| family.name() == name)?;
        let has = |own: &&prometheus::proto::Metric| own.get_label().iter().any(|pair| pair.value() == label);
        let metric = family.get_metric().iter().find(has)?;
        Some(
            metric
                .get_counter()
                .get_value()
                .max(metric.get_gauge().get_value()),
        )
    }

    #[test]
    fn metrics_of_a_component_that_begins_again_go_on() {
        let metrics = ComponentMetrics::default();
        metrics.counters(&COUNTS).of(&["a"]).inc();
        metrics.counters(&COUNTS).of(&["a"]).inc();
        assert_eq!(value(&metrics, "counts_total", "a"), Some(2.0));
        assert!(metrics.text().ends_with("\ncounts_total{namespace=\"a\"} 2\n"));
    }

    #[test]
    fn metrics_have_a_bounded_number_of_series() {
        let metrics = ComponentMetrics::default();
        let counters = metrics.counters(&COUNTS);
        (0..MAX_SERIES + 7).for_each(|at| counters.of(&[&at.to_string()]).inc());
        assert_eq!(value(&metrics, "counts_total", UNEXPECTED), Some(7.0));
        let _reading = metrics.read(&DEPTH, |samples| {
            (0..MAX_SERIES + 3).for_each(|at| samples.add(&[&format!("{at:05}")], 2.0));
        });
        assert_eq!(value(&metrics, "depth", UNEXPECTED), Some(6.0));
        let families = metrics.gather();
        assert!(
            families
                .iter()
                .all(|family| family.get_metric().len() == MAX_SERIES + 1)
        );
    }

    #[test]
    fn metrics_of_what_has_gone_are_forgotten_and_make_room() {
        let metrics = ComponentMetrics::default();
        let counters = metrics.counters(&COUNTS);
        (0..MAX_SERIES).for_each(|at| counters.of(&[&at.to_string()]).inc());
        counters.forget(&["7"]);
        counters.forget(&["never there"]);
        counters.of(&["new"]).inc();
        assert_eq!(value(&metrics, "counts_total", "7"), None);
        assert_eq!(value(&metrics, "counts_total", "new"), Some(1.0));
        assert_eq!(value(&metrics, "counts_total", UNEXPECTED), None);
    }

    #[test]
    fn metrics_that_are_read_end_with_their_component() {
        let metrics = ComponentMetrics::default();
        let first = metrics.read(&DEPTH, |samples| samples.add(&["job"], 2.0));
        let other = metrics.read(&DEPTH, |samples| samples.add(&["job"], 3.0));
        assert_eq!(value(&metrics, "depth", "job"), Some(5.0));
        drop(first);
        assert_eq!(value(&metrics, "depth", "job"), Some(3.0));
        drop(other);
        assert_eq!(value(&metrics, "depth", "job"), None);
    }

    #[test]
    fn metrics_without_labels_are_there_before_their_first_sample() {
        let metrics = ComponentMetrics::default();
        drop(metrics.histograms(&TOOK));
        let families = metrics.gather();
        assert_eq!(families.len(), 1);
        let buckets: Vec<_> = families[0].get_metric()[0]
            .get_histogram()
            .get_bucket()
            .iter()
            .map(|own| own.upper_bound())
            .collect();
        assert_eq!(buckets, [1.0, 2.0, 4.0]);
        assert_eq!(metrics.described().len(), 1);
    }
}
