//! The server's metrics, with upstream's names, in a registry of this instance.

mod admission;
mod audit;
mod authorization;
mod client_certificates;
mod components;
mod encryption;
mod health_checks;
mod heavy_work;
mod storage;

pub(crate) use admission::AdmissionMetrics;
pub(crate) use audit::AuditMetrics;
pub(crate) use authorization::DecisionsCollector;
pub(crate) use client_certificates::client_certificate_lifetimes;

use apiserver_endpoints::RequestInfo;
use apiserver_storage::Storage;
use components::ComponentsCollector;
use encryption::EncryptionCollector;
use health_checks::HealthCheckMetrics;
use heavy_work::HeavyWorkCollector;
use machinery_runtime::Runtime;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::sync::Arc;
use storage::StorageCollector;

/// Upstream's buckets of request durations, in seconds.
const DURATION_BUCKETS: [f64; 21] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    30.0, 60.0,
];

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    durations: HistogramVec,
    in_flight: IntGaugeVec,
    in_queue: IntGaugeVec,
    arriving: IntGaugeVec,
    dropped: IntCounterVec,
    authentications: IntCounterVec,
    aborts: IntCounterVec,
    impersonations: IntCounterVec,
    audit: AuditMetrics,
    pub(crate) health_checks: HealthCheckMetrics,
}

/// What a request is counted under.
#[derive(Debug)]
pub(crate) struct RequestLabels<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) dry_run: bool,
    pub(crate) code: u16,
    pub(crate) long_running: bool,
    /// Whether the resource is served: what is not would make as many series as clients can invent.
    pub(crate) served: bool,
}

impl RequestLabels<'_> {
    fn resource(&self) -> [&str; 4] {
        let info = self.info;
        if self.served {
            [
                &info.api_group,
                &info.api_version,
                &info.resource,
                &info.subresource,
            ]
            .map(String::as_str)
        } else {
            [""; 4]
        }
    }

    fn scope(&self) -> &'static str {
        match (self.info.name.is_empty(), self.info.namespace.is_empty()) {
            _ if !self.info.is_resource_request => "",
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        }
    }

    /// As upstream writes it; paths of clients that made something up do not become labels.
    fn verb(&self) -> &'static str {
        match self.info.verb.as_str() {
            "get" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "create" | "post" => "POST",
            "update" | "put" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            "connect" => "CONNECT",
            _ => "other",
        }
    }
}

/// One less when dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn one_more(gauges: &IntGaugeVec, kind: &str) -> Self {
        let gauge = gauges.with_label_values(&[kind]);
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new(storage: Arc<dyn Storage>, runtime: Runtime) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new(
                    "apiserver_request_total",
                    "Requests by verb, resource, scope and status code.",
                ),
                &[
                    "verb",
                    "dry_run",
                    "group",
                    "version",
                    "resource",
                    "subresource",
                    "scope",
                    "component",
                    "code",
                ],
            )?,
            durations: HistogramVec::new(
                HistogramOpts::new(
                    "apiserver_request_duration_seconds",
                    "Seconds until a request was answered.",
                )
                .buckets(DURATION_BUCKETS.to_vec()),
                &[
                    "verb",
                    "group",
                    "version",
                    "resource",
                    "subresource",
                    "scope",
                    "component",
                ],
            )?,
            in_flight: IntGaugeVec::new(
                Opts::new(
                    "apiserver_current_inflight_requests",
                    "Requests being answered, by kind.",
                ),
                &["request_kind"],
            )?,
            in_queue: IntGaugeVec::new(
                Opts::new(
                    "apiserver_current_inqueue_requests",
                    "Requests that wait for a place among those being answered, by kind.",
                ),
                &["request_kind"],
            )?,
            arriving: IntGaugeVec::new(
                Opts::new(
                    "knarr_request_bodies_arriving",
                    "Requests that have no seats because their bodies are still arriving, by kind.",
                ),
                &["request_kind"],
            )?,
            dropped: IntCounterVec::new(
                Opts::new(
                    "apiserver_dropped_requests_total",
                    "Requests refused because there were too many.",
                ),
                &["request_kind"],
            )?,
            authentications: IntCounterVec::new(
                Opts::new("authentication_attempts", "Attempts to authenticate, by result."),
                &["result"],
            )?,
            aborts: IntCounterVec::new(
                Opts::new(
                    "apiserver_request_aborts_total",
                    "Requests whose client went before there was an answer.",
                ),
                &["verb", "group", "version", "resource", "subresource", "scope"],
            )?,
            impersonations: IntCounterVec::new(
                Opts::new(
                    "apiserver_impersonation_attempts_total",
                    "Total number of impersonation attempts split by mode and decision.",
                ),
                &["mode", "decision"],
            )?,
            audit: AuditMetrics::new(&registry)?,
            health_checks: HealthCheckMetrics::new()?,
            registry,
        };
        metrics.registry.register(Box::new(metrics.aborts.clone()))?;
        metrics
            .registry
            .register(Box::new(metrics.impersonations.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.clone()))?;
        metrics.registry.register(Box::new(metrics.durations.clone()))?;
        metrics.registry.register(Box::new(metrics.in_flight.clone()))?;
        metrics.registry.register(Box::new(metrics.in_queue.clone()))?;
        metrics.registry.register(Box::new(metrics.arriving.clone()))?;
        metrics.registry.register(Box::new(metrics.dropped.clone()))?;
        metrics
            .registry
            .register(Box::new(metrics.authentications.clone()))?;
        metrics
            .registry
            .register(Box::new(ProcessCollector::for_self()))?;
        metrics
            .registry
            .register(Box::new(StorageCollector::new(Arc::clone(&storage))?))?;
        metrics
            .registry
            .register(Box::new(EncryptionCollector::new(storage)?))?;
        metrics
            .registry
            .register(Box::new(HeavyWorkCollector::new(runtime.clone())?))?;
        metrics
            .registry
            .register(Box::new(ComponentsCollector::new(runtime)?))?;
        Ok(metrics)
    }

    pub(crate) fn observe(&self, labels: &RequestLabels<'_>, seconds: f64) {
        let [group, version, resource, subresource] = labels.resource();
        let (verb, scope, code) = (labels.verb(), labels.scope(), labels.code.to_string());
        let dry_run = if labels.dry_run { "All" } else { "" };
        let what = [group, version, resource, subresource, scope, "apiserver"];
        let counted = [
            verb,
            dry_run,
            what[0],
            what[1],
            what[2],
            what[3],
            what[4],
            what[5],
            code.as_str(),
        ];
        self.requests.with_label_values(&counted).inc();
        if !labels.long_running {
            let timed = [verb, what[0], what[1], what[2], what[3], what[4], what[5]];
            self.durations.with_label_values(&timed).observe(seconds);
        }
    }

    pub(crate) fn aborted(&self, labels: &RequestLabels<'_>) {
        let [group, version, resource, subresource] = labels.resource();
        let labels = [
            labels.verb(),
            group,
            version,
            resource,
            subresource,
            labels.scope(),
        ];
        self.aborts.with_label_values(&labels).inc();
    }

    /// An attempt to act as somebody else: the verb that allowed it where that is a constrained one, or a refusal.
    pub(crate) fn impersonated(&self, attempt: Result<Option<&'static str>, ()>) {
        let labels = match attempt {
            Ok(constraint) => {
                let mode = constraint.and_then(|verb| verb.strip_prefix("impersonate:"));
                [mode.unwrap_or("legacy"), "allowed"]
            }
            Err(()) => ["", "denied"],
        };
        self.impersonations.with_label_values(&labels).inc();
    }

    /// Where others put their own.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn audit(&self) -> AuditMetrics {
        self.audit.clone()
    }

    pub(crate) fn in_flight(&self, kind: &str) -> GaugeGuard {
        GaugeGuard::one_more(&self.in_flight, kind)
    }

    pub(crate) fn in_queue(&self, kind: &str) -> GaugeGuard {
        GaugeGuard::one_more(&self.in_queue, kind)
    }

    pub(crate) fn arriving(&self, kind: &str) -> GaugeGuard {
        GaugeGuard::one_more(&self.arriving, kind)
    }

    pub(crate) fn dropped(&self, kind: &str) {
        self.dropped.with_label_values(&[kind]).inc();
    }

    pub(crate) fn authenticated(&self, success: bool) {
        self.authentications
            .with_label_values(&[if success { "success" } else { "failure" }])
            .inc();
    }

    /// Everything in Prometheus' text form.
    pub(crate) fn render(&self) -> Vec<u8> {
        rendered(&self.registry)
    }
}

fn rendered(registry: &Registry) -> Vec<u8> {
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&registry.gather(), &mut text) {
        tracing::error!(%error, "rendering metrics");
    }
    text
}
