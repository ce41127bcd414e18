//! Storage's own figures, read when somebody asks for metrics.

use apiserver_storage::{SYNC_BOUNDS, Statistics, Storage};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use std::collections::HashMap;
use std::sync::Arc;

/// Name and help of the histogram of syncs; the name is etcd's, whose place the log takes.
const SYNCS: (&str, &str) = (
    "etcd_disk_wal_fsync_duration_seconds",
    "Seconds that syncs of the log to the disk took.",
);
/// Upstream's gauge of what storage keeps, by cluster.
const SIZE: (&str, &str) = (
    "apiserver_storage_size_bytes",
    "[STABLE] Size of the storage database file physically allocated in bytes.",
);

/// The name of what etcd calls its NOSPACE alarm, and what goes with it.
const FULL: (&str, &str) = (
    "knarr_storage_full",
    "1 while the disk of the data directory is full and only deletions are written.",
);
const REFUSED: (&str, &str) = (
    "knarr_storage_refused_writes_total",
    "Writes refused because the disk was full.",
);
const RESERVE: (&str, &str) = (
    "knarr_storage_reserve_bytes",
    "Bytes of the disk reserve for deletions and restarts.",
);
const LOG: (&str, &str) = ("knarr_storage_log_bytes", "Bytes of all segments of the log.");
const COMPACTED: (&str, &str) = (
    "knarr_storage_compacted_revision",
    "The oldest revision that can be read.",
);
const DAMAGED: (&str, &str) = (
    "knarr_storage_damaged_files",
    "Files of the log in which the scrub has found damage and which are still needed.",
);
const SCRUBBED: (&str, &str) = (
    "knarr_storage_scrubbed_bytes_total",
    "Bytes of the log that the scrub has read again.",
);
const SCRUBS: (&str, &str) = ("knarr_storage_scrubs_total", "Completed scrubs of the log.");

/// Publishes [`Storage::statistics`]; nothing where the backend has none.
pub(super) struct StorageCollector {
    storage: Arc<dyn Storage>,
    descriptions: Vec<Desc>,
}

impl StorageCollector {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Result<Self, prometheus::Error> {
        let describe =
            |(name, help): (&str, &str)| Desc::new(name.into(), help.into(), Vec::new(), HashMap::new());
        let all = [
            SYNCS, SIZE, FULL, REFUSED, RESERVE, LOG, COMPACTED, DAMAGED, SCRUBBED, SCRUBS,
        ];
        let descriptions = all.into_iter().map(describe).collect::<Result<_, _>>()?;
        Ok(Self {
            storage,
            descriptions,
        })
    }
}

impl Collector for StorageCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.storage
            .statistics()
            .map(|statistics| {
                vec![
                    syncs(&statistics),
                    size(&statistics),
                    gauge(FULL, u64::from(statistics.full)),
                    counter(REFUSED, statistics.refused_writes),
                    gauge(RESERVE, statistics.reserve_bytes),
                    gauge(LOG, statistics.log_bytes),
                    gauge(COMPACTED, statistics.compacted_revision),
                    gauge(DAMAGED, statistics.damaged_files.len() as u64),
                    counter(SCRUBBED, statistics.scrubbed_bytes),
                    counter(SCRUBS, statistics.scrubs),
                ]
            })
            .unwrap_or_default()
    }
}

fn syncs(statistics: &Statistics) -> MetricFamily {
    let groups = SYNC_BOUNDS.iter().zip(statistics.syncs_within);
    let buckets = groups.map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(statistics.syncs);
    histogram.set_sample_sum(statistics.sync_time.as_secs_f64());
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    family(SYNCS, MetricType::HISTOGRAM, metric)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "samples are floats; a petabyte is exact"
)]
fn float(number: u64) -> f64 {
    number as f64
}

fn gauge(what: (&str, &str), value: u64) -> MetricFamily {
    let mut gauge = Gauge::default();
    gauge.set_value(float(value));
    let mut metric = Metric::default();
    metric.set_gauge(gauge);
    family(what, MetricType::GAUGE, metric)
}

fn counter(what: (&str, &str), value: u64) -> MetricFamily {
    let mut counter = Counter::default();
    counter.set_value(float(value));
    let mut metric = Metric::default();
    metric.set_counter(counter);
    family(what, MetricType::COUNTER, metric)
}

fn size(statistics: &Statistics) -> MetricFamily {
    let mut gauge = Gauge::default();
    gauge.set_value(float(statistics.stored_bytes));
    let mut label = LabelPair::default();
    label.set_name("storage_cluster_id".into());
    label.set_value("storage-0".into());
    let mut metric = Metric::default();
    metric.set_gauge(gauge);
    metric.set_label(vec![label]);
    family(SIZE, MetricType::GAUGE, metric)
}

fn family((name, help): (&str, &str), kind: MetricType, metric: Metric) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(vec![metric]);
    family
}
