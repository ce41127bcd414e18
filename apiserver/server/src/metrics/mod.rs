//! The server's metrics, with upstream's names, in a registry of this instance.

mod access;
mod admission;
mod aggregation;
mod audit;
mod authorization;
mod authorization_webhooks;
mod client_certificates;
mod components;
mod conversions;
mod encryption;
mod families;
mod feature_gates;
mod health_checks;
mod heavy_work;
mod identity;
mod issuers;
mod labels;
mod lists;
mod objects;
mod pod_security;
mod policies;
mod process;
mod reloads;
mod requests;
mod storage;
mod unread_memory;
mod watches;
mod webhooks;

pub(crate) use access::{Decided, FILTERS, Identified};
pub(crate) use admission::AdmissionMetrics;
pub(crate) use aggregation::{AggregationMetrics, AvailabilityCollector};
pub(crate) use audit::AuditMetrics;
pub(crate) use authorization::DecisionsCollector;
pub(crate) use authorization_webhooks::AuthorizationWebhookMetrics;
pub(crate) use client_certificates::client_certificate_lifetimes;
pub(crate) use conversions::ConversionMetrics;
pub(crate) use feature_gates::feature_enabled;
pub(crate) use issuers::JwtMetrics;
pub(crate) use labels::RequestLabels;
pub(crate) use lists::ListMetrics;
pub(crate) use pod_security::PodSecurityMetrics;
pub(crate) use policies::PolicyMetrics;
pub(crate) use reloads::ReloadMetrics;
pub(crate) use requests::RequestSeries;
pub(crate) use unread_memory::UnreadMemoryCollector;
pub(crate) use watches::WatchMetrics;
pub(crate) use webhooks::WebhookMetrics;

use access::AccessMetrics;
use apiserver_registry::store::early_expiry::OnExpired;
use apiserver_storage::Storage;
use components::ComponentsCollector;
use encryption::EncryptionCollector;
use families::Families;
use health_checks::HealthCheckMetrics;
use heavy_work::HeavyWorkCollector;
use machinery_runtime::Runtime;
use objects::ObjectMetrics;
use process::ProcessFigures;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use requests::RequestMetrics;
use std::sync::Arc;
use storage::StorageCollector;

#[derive(Debug)]
pub(crate) struct Metrics {
    families: Families,
    /// With the metrics of components that run beside the server.
    runtime: Runtime,
    pub(crate) requests: Arc<RequestMetrics>,
    pub(crate) access: AccessMetrics,
    pub(crate) watches: Arc<WatchMetrics>,
    pub(crate) lists: Arc<ListMetrics>,
    pub(crate) objects: ObjectMetrics,
    in_flight: IntGaugeVec,
    in_queue: IntGaugeVec,
    arriving: IntGaugeVec,
    dropped: IntCounterVec,
    impersonations: IntCounterVec,
    handshake_errors: IntCounter,
    expired_early: IntCounter,
    audit: AuditMetrics,
    pub(crate) health_checks: HealthCheckMetrics,
}

/// One less when dropped.
#[derive(Debug)]
pub(crate) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    pub(crate) fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }

    fn one_more(gauges: &IntGaugeVec, kind: &str) -> Self {
        Self::new(gauges.with_label_values(&[kind]))
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

const REQUEST_KIND: &str = "request_kind";

/// A counter without labels.
fn single(families: &Families, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let counter = IntCounter::new(name, help)?;
    families.registry().register(Box::new(counter.clone()))?;
    let own = counter.clone();
    families.on_reset(move || own.reset());
    Ok(counter)
}

/// Collectors of figures that others keep: process, storage, heavy work, components.
fn register_collectors(
    families: &Families,
    storage: Arc<dyn Storage>,
    runtime: &Runtime,
) -> Result<(), prometheus::Error> {
    let collectors: [Box<dyn Collector>; 6] = [
        Box::new(ProcessCollector::for_self()),
        Box::new(ProcessFigures::new()?),
        Box::new(StorageCollector::new(Arc::clone(&storage))?),
        Box::new(EncryptionCollector::new(storage)?),
        Box::new(HeavyWorkCollector::new(runtime.clone())?),
        Box::new(ComponentsCollector::new(runtime.clone())?),
    ];
    for collector in collectors {
        families.registry().register(collector)?;
    }
    Ok(())
}

impl Metrics {
    pub(crate) fn new(storage: Arc<dyn Storage>, runtime: Runtime) -> Result<Self, prometheus::Error> {
        let families = Families::default();
        register_collectors(&families, storage, &runtime)?;
        let by_kind = |name: &str, help: &str| {
            let gauges = IntGaugeVec::new(Opts::new(name, help), &[REQUEST_KIND])?;
            families.registry().register(Box::new(gauges.clone()))?;
            Ok::<_, prometheus::Error>(gauges)
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            families.vector(IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        Ok(Self {
            requests: RequestMetrics::new(&families)?,
            access: AccessMetrics::new(&families)?,
            watches: WatchMetrics::new(&families)?,
            lists: ListMetrics::new(&families)?,
            objects: ObjectMetrics::new(&families)?,
            in_flight: by_kind(
                "apiserver_current_inflight_requests",
                "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
            )?,
            in_queue: by_kind(
                "apiserver_current_inqueue_requests",
                "[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second.",
            )?,
            arriving: by_kind(
                "knarr_request_bodies_arriving",
                "Requests whose bodies are being received and that hold no seat, by request kind.",
            )?,
            dropped: counter(
                "apiserver_dropped_requests_total",
                "Requests refused because there were too many.",
                &[REQUEST_KIND],
            )?,
            impersonations: counter(
                "apiserver_impersonation_attempts_total",
                "[ALPHA] Total number of impersonation attempts split by mode and decision.",
                &["mode", "decision"],
            )?,
            handshake_errors: single(
                &families,
                "apiserver_tls_handshake_errors_total",
                "[ALPHA] Number of requests dropped with 'TLS handshake error from' error",
            )?,
            expired_early: single(
                &families,
                "knarr_events_expired_early_total",
                "Events that expired before their time, since their namespace held too many.",
            )?,
            audit: AuditMetrics::new(families.registry())?,
            health_checks: HealthCheckMetrics::new()?,
            families,
            runtime,
        })
    }

    /// An attempt to act as another: the verb that allowed it where that is a constrained one, or a refusal.
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

    /// Counts events that expired before their time.
    pub(crate) fn on_expired_early(&self) -> OnExpired {
        let expired = self.expired_early.clone();
        Arc::new(move || expired.inc())
    }

    /// The registry to which other parts add their metrics.
    pub(crate) fn registry(&self) -> &Registry {
        self.families.registry()
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

    /// Counts a connection that did not become one of TLS.
    pub(crate) fn handshake_failed(&self) {
        self.handshake_errors.inc();
    }

    /// Vectors that a reset empties.
    pub(crate) fn families(&self) -> &Families {
        &self.families
    }

    /// Resets the counts. Figures that are read from other parts at each request for metrics (storage, the process,
    /// authorizers, priority and fairness, components beside the server) are not kept here and go on.
    pub(crate) fn reset(&self) {
        self.families.reset();
    }

    /// Everything in Prometheus' text form, with what components beside the server count.
    pub(crate) fn render(&self) -> Vec<u8> {
        let mut families = self.registry().gather();
        families.extend(self.runtime.metrics().gather());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        encoded(&families)
    }
}

fn rendered(registry: &Registry) -> Vec<u8> {
    encoded(&registry.gather())
}

fn encoded(families: &[MetricFamily]) -> Vec<u8> {
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(families, &mut text) {
        tracing::error!(%error, "rendering metrics");
    }
    text
}
