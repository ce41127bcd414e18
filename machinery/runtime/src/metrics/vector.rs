//! Vectors with a bounded number of series.

use super::{MAX_SERIES, UNEXPECTED};
use parking_lot::Mutex;
use prometheus::core::{MetricVec, MetricVecBuilder};
use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec};
use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Counters of a family, by the values of its labels. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Counters(Bounded<IntCounterVec>);

/// Gauges of a family, by the values of its labels. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gauges(Bounded<GaugeVec>);

/// Histograms of a family, by the values of its labels. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Histograms(Bounded<HistogramVec>);

impl Counters {
    pub(super) fn new(vector: IntCounterVec, labels: usize) -> Self {
        Self(Bounded::new(vector, labels))
    }

    /// The counter of these values.
    pub fn of(&self, values: &[&str]) -> IntCounter {
        self.0.of(values)
    }

    /// Forgets the counter of these values: what they name has gone.
    pub fn forget(&self, values: &[&str]) {
        self.0.forget(values);
    }
}

impl Gauges {
    pub(super) fn new(vector: GaugeVec, labels: usize) -> Self {
        Self(Bounded::new(vector, labels))
    }

    /// The gauge of these values.
    pub fn of(&self, values: &[&str]) -> Gauge {
        self.0.of(values)
    }
}

impl Histograms {
    pub(super) fn new(vector: HistogramVec, labels: usize) -> Self {
        Self(Bounded::new(vector, labels))
    }

    /// The histogram of these values.
    pub fn of(&self, values: &[&str]) -> Histogram {
        self.0.of(values)
    }

    /// Forgets the histogram of these values: what they name has gone.
    pub fn forget(&self, values: &[&str]) {
        self.0.forget(values);
    }
}

#[derive(Clone)]
struct Bounded<V> {
    vector: V,
    labels: usize,
    /// Values that have a series, by their hash: two that share one share its place, and each has its own series.
    known: Arc<Mutex<HashSet<u64>>>,
}

impl<V> fmt::Debug for Bounded<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded")
            .field("series", &self.known.lock().len())
            .finish_non_exhaustive()
    }
}

impl<B: MetricVecBuilder> Bounded<MetricVec<B>> {
    fn new(vector: MetricVec<B>, labels: usize) -> Self {
        if labels == 0 {
            // As upstream's of families without labels.
            drop(vector.with_label_values::<&str>(&[]));
        }
        Self {
            vector,
            labels,
            known: Arc::default(),
        }
    }

    fn forget(&self, values: &[&str]) {
        // Under the lock: another series of these values may begin.
        let mut known = self.known.lock();
        if self.vector.remove_label_values(values).is_ok() {
            known.remove(&hash_of(values));
        }
    }

    fn of(&self, values: &[&str]) -> B::M {
        let hash = hash_of(values);
        let mut known = self.known.lock();
        if known.len() < MAX_SERIES {
            known.insert(hash);
        }
        if known.contains(&hash) {
            return self.vector.with_label_values(values);
        }
        self.vector.with_label_values(&vec![UNEXPECTED; self.labels])
    }
}

fn hash_of(values: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}
