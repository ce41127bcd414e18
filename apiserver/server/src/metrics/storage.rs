//! Storage's own figures, read with each request for metrics.

use apiserver_storage::{SYNC_BOUNDS, Statistics, Storage, Usage};
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
const REFUSED_FOR_PAST: (&str, &str) = (
    "knarr_storage_past_refused_writes_total",
    "Writes refused because their namespace had written its share of the changes that are kept.",
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

const QUOTA: (&str, &str) = (
    "knarr_storage_quota_bytes",
    "Bytes of memory that all stored objects together may take; 0 sets no bound.",
);
const USED: (&str, &str) = (
    "knarr_storage_used_bytes",
    "Bytes of memory that all stored objects take.",
);
const NAMESPACE_QUOTA: (&str, &str) = (
    "knarr_storage_namespace_quota_bytes",
    "Bytes of memory that the stored objects of one namespace may take; 0 sets no bound.",
);
const OWN_QUOTA: (&str, &str) = (
    "knarr_storage_namespace_own_quota_bytes",
    "Bytes of memory that a Namespace sets for its stored objects, of those that set a number; 0 sets no bound.",
);
const NAMESPACE_USED: (&str, &str) = (
    "knarr_storage_namespace_used_bytes",
    "Bytes of memory that stored objects take, by namespace, of the ten largest; those with a time to live by themselves.",
);
const QUOTA_FULL: (&str, &str) = (
    "knarr_storage_quota_full",
    "1 while users' writes are refused because all stored objects together take what they may.",
);
const OVER_QUOTA: (&str, &str) = (
    "knarr_storage_quota_refused_writes_total",
    "Writes refused by the quota of the store and by the share of a namespace.",
);

/// Publishes [`Storage::usage`], and [`Storage::statistics`] where the backend has some.
pub(super) struct StorageCollector {
    storage: Arc<dyn Storage>,
    descriptions: Vec<Desc>,
}

impl StorageCollector {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Result<Self, prometheus::Error> {
        let describe =
            |(name, help): (&str, &str)| Desc::new(name.into(), help.into(), Vec::new(), HashMap::new());
        let all = [
            SYNCS,
            SIZE,
            FULL,
            REFUSED,
            REFUSED_FOR_PAST,
            RESERVE,
            LOG,
            COMPACTED,
            DAMAGED,
            SCRUBBED,
            SCRUBS,
            QUOTA,
            USED,
            NAMESPACE_QUOTA,
            OWN_QUOTA,
            NAMESPACE_USED,
            QUOTA_FULL,
            OVER_QUOTA,
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
        let mut families = of_usage(&self.storage.usage());
        families.extend(self.storage.statistics().iter().flat_map(of_statistics));
        families
    }
}

fn of_statistics(statistics: &Statistics) -> Vec<MetricFamily> {
    vec![
        syncs(statistics),
        size(statistics),
        gauge(FULL, u64::from(statistics.full)),
        counter(REFUSED, statistics.refused_writes),
        counter(REFUSED_FOR_PAST, statistics.refused_for_past),
        gauge(RESERVE, statistics.reserve_bytes),
        gauge(LOG, statistics.log_bytes),
        gauge(COMPACTED, statistics.compacted_revision),
        gauge(DAMAGED, statistics.damaged_files.len() as u64),
        counter(SCRUBBED, statistics.scrubbed_bytes),
        counter(SCRUBS, statistics.scrubs),
    ]
}

fn of_usage(usage: &Usage) -> Vec<MetricFamily> {
    let largest = usage.largest.iter().flat_map(|own| {
        let parts = [("false", own.lasting_bytes), ("true", own.expiring_bytes)];
        let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0);
        parts.map(|(expiring, bytes)| {
            let labels = [("expiring", expiring), ("namespace", own.namespace.as_str())];
            labelled(labels.map(label).to_vec(), a_gauge(bytes))
        })
    });
    let refused = [
        ("store", usage.refused_by_store),
        ("namespace", usage.refused_by_namespace),
    ];
    let refused = refused.map(|(quota, count)| labelled(vec![label(("quota", quota))], a_counter(count)));
    let mut families = vec![
        gauge(QUOTA, usage.quota.store_bytes),
        gauge(USED, usage.bytes),
        gauge(NAMESPACE_QUOTA, usage.quota.namespace_bytes),
        family(OVER_QUOTA, MetricType::COUNTER, refused.to_vec()),
        gauge(QUOTA_FULL, u64::from(usage.is_full)),
    ];
    let own = usage.own_shares.iter();
    let own = own
        .map(|(namespace, bytes)| labelled(vec![label(("namespace", namespace.as_str()))], a_gauge(*bytes)));
    let own: Vec<Metric> = own.collect();
    families.extend((!own.is_empty()).then(|| family(OWN_QUOTA, MetricType::GAUGE, own)));
    let largest: Vec<Metric> = largest.collect();
    families.extend((!largest.is_empty()).then(|| family(NAMESPACE_USED, MetricType::GAUGE, largest)));
    families
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
    family(SYNCS, MetricType::HISTOGRAM, vec![metric])
}

#[expect(
    clippy::cast_precision_loss,
    reason = "samples are floats; a petabyte is exact"
)]
fn float(number: u64) -> f64 {
    number as f64
}

fn a_gauge(value: u64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(float(value));
    let mut metric = Metric::default();
    metric.set_gauge(gauge);
    metric
}

fn a_counter(value: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(float(value));
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric
}

fn label((name, value): (&str, &str)) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.into());
    label.set_value(value.into());
    label
}

fn labelled(labels: Vec<LabelPair>, mut metric: Metric) -> Metric {
    metric.set_label(labels);
    metric
}

fn gauge(what: (&str, &str), value: u64) -> MetricFamily {
    family(what, MetricType::GAUGE, vec![a_gauge(value)])
}

fn counter(what: (&str, &str), value: u64) -> MetricFamily {
    family(what, MetricType::COUNTER, vec![a_counter(value)])
}

fn size(statistics: &Statistics) -> MetricFamily {
    let cluster = label(("storage_cluster_id", "storage-0"));
    let metric = labelled(vec![cluster], a_gauge(statistics.stored_bytes));
    family(SIZE, MetricType::GAUGE, vec![metric])
}

fn family((name, help): (&str, &str), kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}
