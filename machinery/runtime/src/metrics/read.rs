//! Gauges that are read at each scrape.

use super::{Family, MAX_SERIES, UNEXPECTED};
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, Opts};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

type Read = dyn Fn(&mut Samples) + Send + Sync;

/// Keeps a reader known; see [`super::ComponentMetrics::read`].
#[derive(Clone)]
pub struct Reading {
    _read: Arc<Read>,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").finish_non_exhaustive()
    }
}

/// Values by labels, as readers add them up.
#[derive(Debug, Default)]
pub struct Samples {
    values: BTreeMap<Vec<String>, f64>,
    labels: usize,
}

impl Samples {
    /// Adds to the value of these labels.
    pub fn add(&mut self, labels: &[&str], value: f64) {
        let own: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let has_room = self.values.len() < MAX_SERIES || self.values.contains_key(&own);
        let own = if has_room {
            own
        } else {
            vec![UNEXPECTED.to_owned(); self.labels]
        };
        *self.values.entry(own).or_default() += value;
    }
}

/// A family and its readers.
pub(super) struct ReadFamily {
    family: Family,
    description: Desc,
    readers: Mutex<Vec<Weak<Read>>>,
}

impl ReadFamily {
    pub(super) fn new(family: Family) -> Result<Self, prometheus::Error> {
        let labels = family.labels.iter().map(|label| (*label).to_owned()).collect();
        Ok(Self {
            family,
            description: Desc::new(family.name.into(), family.help.into(), labels, HashMap::new())?,
            readers: Mutex::default(),
        })
    }

    pub(super) fn add(&self, read: Arc<Read>) -> Reading {
        let mut readers = self.readers.lock();
        readers.retain(|own| own.strong_count() > 0);
        readers.push(Arc::downgrade(&read));
        Reading { _read: read }
    }

    pub(super) fn collector(self: Arc<Self>) -> impl Collector {
        Shared(self)
    }

    fn samples(&self) -> Samples {
        let readers: Vec<_> = self.readers.lock().iter().filter_map(Weak::upgrade).collect();
        let mut samples = Samples {
            labels: self.family.labels.len(),
            ..Samples::default()
        };
        for read in readers {
            read(&mut samples);
        }
        samples
    }
}

/// A family as the registry holds it.
struct Shared(Arc<ReadFamily>);

impl Collector for Shared {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let family = &self.0.family;
        let Ok(gauges) = GaugeVec::new(Opts::new(family.name, family.help), family.labels) else {
            return Vec::new();
        };
        for (labels, value) in self.0.samples().values {
            gauges.with_label_values(&labels).set(value);
        }
        gauges.collect()
    }
}
