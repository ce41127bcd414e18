//! Requests that a handler served, under upstream's names.
//!
//! The metrics of one set of labels are found once and kept: a request looks for them by the hash of its labels, and
//! makes no text.

use super::families::{Families, HistogramCells};
use super::labels::{LABELS, RequestLabels};
use parking_lot::RwLock;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Upstream's buckets of request durations, in seconds.
const DURATIONS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// First of the buckets that the objective's durations have.
const FIRST_OF_OBJECTIVE: usize = 2;
/// A kilobyte to a gigabyte.
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// Sets of labels beyond which requests are counted without their resource: a user that defines kinds and deletes them again
/// could add series for ever.
const MAX_SERIES: usize = 20_000;

const COUNTED: [&str; 9] = [
    "verb",
    "dry_run",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
    "code",
];
const TIMED: [&str; 8] = [
    "verb",
    "dry_run",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];
const PLAIN: [&str; 7] = [
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
];
const ABORTED: [&str; 6] = ["verb", "group", "version", "resource", "subresource", "scope"];
/// Values of the label `field_validation`; a bad one is `invalid`.
const FIELD_VALIDATIONS: [&str; 5] = ["", "Ignore", "Warn", "Strict", "invalid"];
const TERMINATED: [&str; 8] = [
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "component",
    "code",
];
const OF_SERVER: [&str; 4] = ["verb", "group", "resource", "subresource"];
const RECEIVED: [&str; 3] = ["group", "resource", "verb"];
/// Buckets of body sizes: the first bound, the distance between bounds, and their number.
const BODY_BUCKETS: (f64, f64, usize) = (50_000.0, 100_000.0, 31);
const DEPRECATED: [&str; 5] = ["group", "version", "resource", "subresource", "removed_release"];

#[derive(Debug)]
struct Vectors {
    requests: IntCounterVec,
    durations: HistogramVec,
    objective: HistogramVec,
    sizes: HistogramVec,
    bodies: HistogramVec,
    long_running: IntGaugeVec,
    deprecated: IntGaugeVec,
    aborts: IntCounterVec,
    terminations: IntCounterVec,
    of_server: IntCounterVec,
    field_validations: Arc<HistogramCells>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    vectors: Arc<Vectors>,
    known: RwLock<HashMap<u64, Arc<RequestSeries>>>,
}

/// Metrics of one set of labels.
#[derive(Debug)]
pub(crate) struct RequestSeries {
    labels: [Box<str>; LABELS],
    vectors: Arc<Vectors>,
    duration: Histogram,
    /// Absent for dry runs.
    objective: Option<Histogram>,
    size: OnceLock<Histogram>,
    body: OnceLock<Histogram>,
    codes: RwLock<Vec<(u16, IntCounter)>>,
}

fn histogram(
    families: &Families,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    families.vector(HistogramVec::new(options, labels)?)
}

fn field_validations(families: &Families) -> Result<Arc<HistogramCells>, prometheus::Error> {
    let options = HistogramOpts::new(
        "field_validation_request_duration_seconds",
        "[ALPHA] Response latency distribution in seconds for each field validation value",
    );
    let options = options.buckets(DURATIONS[FIRST_OF_OBJECTIVE..].to_vec());
    let vector = HistogramVec::new(options, &["field_validation"])?;
    families.cells(vector, FIELD_VALIDATIONS.len())
}

impl Vectors {
    fn new(families: &Families) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            families.vector(IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            families.vector(IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        Ok(Self {
            requests: counter(
                "apiserver_request_total",
                "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
                &COUNTED,
            )?,
            durations: histogram(
                families,
                "apiserver_request_duration_seconds",
                "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
                &DURATIONS,
                &TIMED,
            )?,
            objective: histogram(
                families,
                "apiserver_request_sli_duration_seconds",
                "[ALPHA] Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, group, version, resource, subresource, scope and component.",
                &DURATIONS[FIRST_OF_OBJECTIVE..],
                &PLAIN,
            )?,
            sizes: histogram(
                families,
                "apiserver_response_sizes",
                "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
                &SIZES,
                &PLAIN,
            )?,
            bodies: histogram(
                families,
                "apiserver_request_body_size_bytes",
                "[ALPHA] Apiserver request body size in bytes broken out by resource and verb.",
                &prometheus::linear_buckets(BODY_BUCKETS.0, BODY_BUCKETS.1, BODY_BUCKETS.2)?,
                &RECEIVED,
            )?,
            long_running: gauge(
                "apiserver_longrunning_requests",
                "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
                &PLAIN,
            )?,
            deprecated: gauge(
                "apiserver_requested_deprecated_apis",
                "[STABLE] Gauge of deprecated APIs that have been requested, broken out by API group, version, resource, subresource, and removed_release.",
                &DEPRECATED,
            )?,
            aborts: counter(
                "apiserver_request_aborts_total",
                "[ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, resource, subresource and scope",
                &ABORTED,
            )?,
            terminations: counter(
                "apiserver_request_terminations_total",
                "[ALPHA] Number of requests which apiserver terminated in self-defense.",
                &TERMINATED,
            )?,
            of_server: counter(
                "apiserver_selfrequest_total",
                "[ALPHA] Counter of apiserver self-requests broken out for each verb, API resource and subresource.",
                &OF_SERVER,
            )?,
            field_validations: field_validations(families)?,
        })
    }
}

impl RequestMetrics {
    pub(super) fn new(families: &Families) -> Result<Arc<Self>, prometheus::Error> {
        let metrics = Arc::new(Self {
            vectors: Arc::new(Vectors::new(families)?),
            known: RwLock::default(),
        });
        let own = Arc::clone(&metrics);
        families.on_reset(move || own.known.write().clear());
        Ok(metrics)
    }

    /// The metrics of a request.
    pub(crate) fn series(&self, labels: &RequestLabels) -> Arc<RequestSeries> {
        let hash = hash_of(&labels.values());
        if let Some(found) = self.known.read().get(&hash)
            && found.has(&labels.values())
        {
            return Arc::clone(found);
        }
        self.add(labels, hash)
    }

    fn add(&self, labels: &RequestLabels, hash: u64) -> Arc<RequestSeries> {
        let mut known = self.known.write();
        if known.len() < MAX_SERIES {
            let made = Arc::new(RequestSeries::new(&self.vectors, labels));
            // Where two sets have one hash, the second is found by its labels each time.
            known.entry(hash).or_insert_with(|| Arc::clone(&made));
            return made;
        }
        let labels = labels.without_resource();
        let made = || Arc::new(RequestSeries::new(&self.vectors, &labels));
        Arc::clone(known.entry(hash_of(&labels.values())).or_insert_with(made))
    }
}

fn hash_of(values: &[&str; LABELS]) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}

/// All labels but one.
fn without<const N: usize>(labels: &[Box<str>; LABELS], skipped: usize) -> [&str; N] {
    let mut left = labels.iter().enumerate().filter(|(at, _)| *at != skipped);
    std::array::from_fn(|_| left.next().map_or("", |(_, own)| &**own))
}

impl RequestSeries {
    fn new(vectors: &Arc<Vectors>, labels: &RequestLabels) -> Self {
        let values = labels.values();
        let plain = [
            values[0], values[2], values[3], values[4], values[5], values[6], values[7],
        ];
        if labels.is_deprecated() {
            // None of the deprecated versions that are served has a release that removes it.
            let own = [values[2], values[3], values[4], values[5], ""];
            vectors.deprecated.with_label_values(&own).set(1);
        }
        Self {
            duration: vectors.durations.with_label_values(&values),
            // A watch lasts as long as its client wants it to.
            objective: (values[1].is_empty() && values[0] != "WATCH")
                .then(|| vectors.objective.with_label_values(&plain)),
            size: OnceLock::new(),
            body: OnceLock::new(),
            codes: RwLock::default(),
            vectors: Arc::clone(vectors),
            labels: values.map(Box::from),
        }
    }

    fn has(&self, values: &[&str; LABELS]) -> bool {
        self.labels
            .iter()
            .zip(values)
            .all(|(own, other)| **own == **other)
    }

    /// Counts a request that has ended, with the seconds it took and those of them that it spent in a queue.
    pub(crate) fn ended(&self, code: u16, seconds: f64, queued: f64) {
        self.code(code);
        self.duration.observe(seconds);
        if let Some(objective) = &self.objective {
            objective.observe((seconds - queued).max(0.0));
        }
    }

    /// Counts a request under its code and nothing else.
    pub(crate) fn code(&self, code: u16) {
        if let Some((_, counter)) = self.codes.read().iter().find(|(own, _)| *own == code) {
            counter.inc();
            return;
        }
        let text = code.to_string();
        let mut labels = [""; COUNTED.len()];
        for (label, own) in labels.iter_mut().zip(&self.labels) {
            *label = &**own;
        }
        labels[LABELS] = &text;
        let counter = self.vectors.requests.with_label_values(&labels);
        counter.inc();
        self.codes.write().push((code, counter));
    }

    /// Counts the time of a request under its field validation. Upstream has the series and observes nothing.
    pub(crate) fn validated(&self, field_validation: &'static str, seconds: f64) {
        let at = FIELD_VALIDATIONS.iter().position(|own| *own == field_validation);
        let cells = &self.vectors.field_validations;
        cells.with(at.unwrap_or_default(), &[field_validation], |own| {
            own.observe(seconds)
        });
    }

    /// Counts a request that the server ended before its handler had an answer.
    pub(crate) fn terminated(&self, code: u16) {
        let [verb, group, version, resource, subresource, scope, component]: [&str; 7] =
            without(&self.labels, 1);
        let code = code.to_string();
        let labels = [
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
            component,
            code.as_str(),
        ];
        self.vectors.terminations.with_label_values(&labels).inc();
    }

    /// Counts a request of the server itself.
    pub(crate) fn of_server(&self) {
        let [verb, group, _, resource, subresource, ..]: [&str; 7] = without(&self.labels, 1);
        let labels = [verb, group, resource, subresource];
        self.vectors.of_server.with_label_values(&labels).inc();
    }

    pub(crate) fn aborted(&self) {
        let [verb, group, version, resource, subresource, scope, _]: [&str; 7] = without(&self.labels, 1);
        let labels = [verb, group, version, resource, subresource, scope];
        self.vectors.aborts.with_label_values(&labels).inc();
    }

    #[expect(clippy::cast_precision_loss, reason = "a petabyte is exact")]
    pub(crate) fn sized(&self, bytes: u64) {
        let size = self.size.get_or_init(|| {
            let labels: [&str; 7] = without(&self.labels, 1);
            self.vectors.sizes.with_label_values(&labels)
        });
        size.observe(bytes as f64);
    }

    /// Counts the bytes of a body that was read.
    #[expect(clippy::cast_precision_loss, reason = "a petabyte is exact")]
    pub(crate) fn received(&self, bytes: usize) {
        let body = self.body.get_or_init(|| {
            let [verb, _, group, _, resource, _, scope, _] = self.labels.each_ref().map(|own| &**own);
            let verb = match verb {
                "POST" => "create",
                "PUT" => "update",
                "DELETE" if scope == "resource" => "delete",
                "DELETE" => "delete_collection",
                _ => "patch",
            };
            self.vectors.bodies.with_label_values(&[group, resource, verb])
        });
        body.observe(bytes as f64);
    }

    /// The gauge of requests under way.
    pub(crate) fn long_running(&self, verb: &str) -> IntGauge {
        let mut labels: [&str; 7] = without(&self.labels, 1);
        labels[0] = verb;
        self.vectors.long_running.with_label_values(&labels)
    }
}
