//! Encryption at rest, by upstream's names.

use super::identity;
use apiserver_storage::Storage;
use apiserver_storage::encryption::{CallDurations, EncryptionMeasures, KmsCounts};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use std::collections::HashMap;
use std::sync::Arc;

/// Name, help and labels.
type Family = (&'static str, &'static str, &'static [&'static str]);

const OPERATIONS: Family = (
    "apiserver_storage_transformation_operations_total",
    "[ALPHA] Total number of transformations. Successful transformation will have a status 'OK' and a varied status string when the transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes. For example, you can monitor for encryption/decryption failures using the transformation_type (e.g., from_storage for decryption and to_storage for encryption). Additionally, these fields can be used to ensure that the correct transformers are applied to each resource.",
    &["resource", "transformation_type", "transformer_prefix", "status"],
);
const DURATIONS: Family = (
    "apiserver_storage_transformation_duration_seconds",
    "[ALPHA] Latencies in seconds of value transformation operations.",
    &["transformation_type", "transformer_prefix"],
);
const RELOADS: Family = (
    "apiserver_encryption_config_controller_automatic_reloads_total",
    "[ALPHA] Total number of reload successes and failures of encryption configuration split by apiserver identity.",
    &["status", "apiserver_id_hash"],
);
const RELOADED: Family = (
    "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
    "[ALPHA] Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity.",
    &["status", "apiserver_id_hash"],
);
const CONFIG: Family = (
    "apiserver_encryption_config_controller_last_config_info",
    "[ALPHA] Information about the last applied encryption configuration with hash as label, split by apiserver identity.",
    &["apiserver_id_hash", "hash"],
);

const UNOPENED: Family = (
    "knarr_storage_unopened_values",
    "Stored values that no key of the encryption configuration decrypts.",
    &[],
);

const KEY_IDS: Family = (
    "apiserver_envelope_encryption_key_id_hash_total",
    "[ALPHA] Number of times a keyID is used split by transformation type, provider, and apiserver identity.",
    &[
        "transformation_type",
        "provider_name",
        "key_id_hash",
        "apiserver_id_hash",
    ],
);
const KEY_ID_USED: Family = (
    "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
    "[ALPHA] The last time in seconds when a keyID was used.",
    &[
        "transformation_type",
        "provider_name",
        "key_id_hash",
        "apiserver_id_hash",
    ],
);
const KEY_ID_NAMED: Family = (
    "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
    "[ALPHA] The last time in seconds when a keyID was returned by the Status RPC call.",
    &["provider_name", "key_id_hash", "apiserver_id_hash"],
);
const INVALID_KEY_IDS: Family = (
    "apiserver_envelope_encryption_invalid_key_id_from_status_total",
    "[ALPHA] Number of times an invalid keyID is returned by the Status RPC call split by error.",
    &["provider_name", "error"],
);
const KEPT: Family = (
    "apiserver_envelope_encryption_dek_source_cache_size",
    "[ALPHA] Number of records in data encryption key (DEK) source cache. On a restart, this value is an approximation of the number of decrypt RPC calls the server will make to the KMS plugin.",
    &["provider_name"],
);
const CALLS: Family = (
    "apiserver_envelope_encryption_kms_operations_latency_seconds",
    "[ALPHA] KMS operation duration with gRPC error code status total.",
    &["provider_name", "method_name", "grpc_status_code"],
);

/// Publishes the counters of [`Storage::encryption`], where there is one, and values that no key decrypts.
pub(super) struct EncryptionCollector {
    storage: Arc<dyn Storage>,
    descriptions: Vec<Desc>,
    /// SHA-256 of the server's identity.
    server: String,
}

impl EncryptionCollector {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Result<Self, prometheus::Error> {
        let describe = |(name, help, labels): Family| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(name.into(), help.into(), labels, HashMap::new())
        };
        let of_files = [OPERATIONS, DURATIONS, RELOADS, RELOADED, CONFIG, UNOPENED];
        let of_plugins = [KEY_IDS, KEY_ID_USED, KEY_ID_NAMED, INVALID_KEY_IDS, KEPT, CALLS];
        let all = of_files.into_iter().chain(of_plugins);
        let descriptions = all.map(describe).collect::<Result<_, _>>()?;
        Ok(Self {
            storage,
            descriptions,
            server: identity::hash(),
        })
    }
}

impl Collector for EncryptionCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let unopened = unopened(&self.storage);
        let Some(encryption) = self.storage.encryption() else {
            return vec![unopened];
        };
        let measures = encryption.measures();
        let families = [
            operations(&measures),
            durations(&measures),
            reloads(&measures, &self.server),
            reloaded(&measures, &self.server),
            family(
                CONFIG,
                MetricType::GAUGE,
                vec![gauge(&CONFIG, &[&self.server, &measures.config_hash], 1.0)],
            ),
            unopened,
        ];
        let filled = families
            .into_iter()
            .chain(of_plugins(&measures.kms, &self.server))
            .filter(|family| !family.get_metric().is_empty());
        filled.collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below where it begins")]
fn unopened(storage: &Arc<dyn Storage>) -> MetricFamily {
    let count = storage.unopened().count as f64;
    family(UNOPENED, MetricType::GAUGE, vec![gauge(&UNOPENED, &[], count)])
}

fn operations(measures: &EncryptionMeasures) -> MetricFamily {
    let metrics = measures.operations.iter().map(|(own, count)| {
        let values = [
            &*own.resource,
            own.transformation_type,
            &own.transformer_prefix,
            own.status,
        ];
        counter(&OPERATIONS, &values, *count)
    });
    family(OPERATIONS, MetricType::COUNTER, metrics.collect())
}

fn durations(measures: &EncryptionMeasures) -> MetricFamily {
    let metrics = measures.durations.iter().map(|((kind, prefix), own)| {
        let bounds = (0..).map(EncryptionMeasures::bound).zip(&own.within);
        histogram(&DURATIONS, &[kind, prefix], bounds, (own.count, own.seconds))
    });
    family(DURATIONS, MetricType::HISTOGRAM, metrics.collect())
}

/// Counts of plugins.
#[expect(clippy::cast_precision_loss, reason = "samples are floats")]
fn of_plugins(counts: &KmsCounts, server: &str) -> [MetricFamily; 6] {
    let seconds = |milliseconds: i64| milliseconds as f64 / 1e3;
    let keys = counts.key_ids.iter();
    let uses = keys.map(|((kind, provider, hash), own)| {
        let labels = [*kind, provider, hash, server];
        (
            counter(&KEY_IDS, &labels, own.count),
            gauge(&KEY_ID_USED, &labels, seconds(own.last)),
        )
    });
    let (totals, last) = uses.unzip();
    let named = counts.status_key_ids.iter();
    let named =
        named.map(|((provider, hash), at)| gauge(&KEY_ID_NAMED, &[provider, hash, server], seconds(*at)));
    let invalid = counts.invalid_key_ids.iter();
    let invalid = invalid.map(|((provider, why), count)| counter(&INVALID_KEY_IDS, &[provider, why], *count));
    let kept = counts.kept.iter();
    let kept = kept.map(|(provider, count)| gauge(&KEPT, &[provider], *count as f64));
    let calls = counts.calls.iter().map(|((provider, method, code), own)| {
        let bounds = (0..).map(CallDurations::bound).zip(&own.within);
        histogram(
            &CALLS,
            &[provider, method, code],
            bounds,
            (own.count, own.seconds),
        )
    });
    [
        family(KEY_IDS, MetricType::COUNTER, totals),
        family(KEY_ID_USED, MetricType::GAUGE, last),
        family(KEY_ID_NAMED, MetricType::GAUGE, named.collect()),
        family(INVALID_KEY_IDS, MetricType::COUNTER, invalid.collect()),
        family(KEPT, MetricType::GAUGE, kept.collect()),
        family(CALLS, MetricType::HISTOGRAM, calls.collect()),
    ]
}

/// A histogram of bounds with their cumulative counts.
fn histogram<'a>(
    own: &Family,
    values: &[&str],
    groups: impl Iterator<Item = (f64, &'a u64)>,
    (count, seconds): (u64, f64),
) -> Metric {
    let groups = groups.map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(*count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(groups.collect());
    histogram.set_sample_count(count);
    histogram.set_sample_sum(seconds);
    let mut metric = labelled(own, values);
    metric.set_histogram(histogram);
    metric
}

fn reloads(measures: &EncryptionMeasures, server: &str) -> MetricFamily {
    let metrics = measures.reloads.iter();
    let metrics = metrics.map(|(status, (count, _))| counter(&RELOADS, &[status, server], *count));
    family(RELOADS, MetricType::COUNTER, metrics.collect())
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact")]
fn reloaded(measures: &EncryptionMeasures, server: &str) -> MetricFamily {
    let metrics = measures.reloads.iter();
    let metrics = metrics.map(|(status, (_, at))| gauge(&RELOADED, &[status, server], *at as f64));
    family(RELOADED, MetricType::GAUGE, metrics.collect())
}

fn labelled((_, _, labels): &Family, values: &[&str]) -> Metric {
    let pairs = labels.iter().zip(values).map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).into());
        pair.set_value((*value).into());
        pair
    });
    let mut pairs: Vec<LabelPair> = pairs.collect();
    pairs.sort_by(|one, other| one.name().cmp(other.name()));
    let mut metric = Metric::default();
    metric.set_label(pairs);
    metric
}

#[expect(
    clippy::cast_precision_loss,
    reason = "samples are floats; a petabyte is exact"
)]
fn counter(own: &Family, values: &[&str], value: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value as f64);
    let mut metric = labelled(own, values);
    metric.set_counter(counter);
    metric
}

fn gauge(own: &Family, values: &[&str], value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = labelled(own, values);
    metric.set_gauge(gauge);
    metric
}

fn family((name, help, _): Family, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}
