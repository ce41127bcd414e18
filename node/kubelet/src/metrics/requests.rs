//! Requests to this agent's server, and this agent's to the API server.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Gauges, Histograms};
use std::sync::Arc;
use std::time::Duration;

const LABELS: &[&str] = &["method", "path", "server_type", "long_running"];
const SERVED: Family = Family::new(
    "kubelet_http_requests_total",
    "[ALPHA] Number of the http requests received since the server started",
    LABELS,
);
const DURATION: Family = Family::new(
    "kubelet_http_requests_duration_seconds",
    "[ALPHA] Duration in seconds to serve http requests",
    LABELS,
);
const IN_FLIGHT: Family = Family::new(
    "kubelet_http_inflight_requests",
    "[ALPHA] Number of the inflight http requests",
    LABELS,
);
const STREAMS: Family = Family::new(
    "kubelet_websocket_streaming_requests_total",
    "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
    &["subresource"],
);
const SENT: Family = Family::new(
    "rest_client_requests_total",
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    &["code", "host", "method"],
);
const SENT_DURATION: Family = Family::new(
    "rest_client_request_duration_seconds",
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    &["host", "verb"],
)
.listed(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);

/// Paths that have a label of their own.
const PATHS: [&str; 21] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "livez",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "readyz",
    "run",
    "runningpods",
    "stats",
    "statusz",
];
/// Paths whose requests last.
const LASTING: [&str; 2] = ["attach", "exec"];

pub(crate) fn begin(metrics: &ComponentMetrics) {
    let _ = (metrics.counters(&SERVED), metrics.histograms(&DURATION));
    let _ = (metrics.gauges(&IN_FLIGHT), metrics.counters(&STREAMS));
    let _ = (metrics.counters(&SENT), metrics.histograms(&SENT_DURATION));
}

/// Counts of requests to this agent's server.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    runtime: Runtime,
    served: Counters,
    durations: Histograms,
    in_flight: Gauges,
    streams: Counters,
}

/// A request that is being served, until it is dropped.
#[derive(Debug)]
pub(crate) struct ServedRequest {
    metrics: Arc<ServerMetrics>,
    labels: [&'static str; 4],
    began: Duration,
}

impl ServerMetrics {
    pub(crate) fn new(runtime: &Runtime) -> Arc<Self> {
        let metrics = runtime.metrics();
        Arc::new(Self {
            runtime: runtime.clone(),
            served: metrics.counters(&SERVED),
            durations: metrics.histograms(&DURATION),
            in_flight: metrics.gauges(&IN_FLIGHT),
            streams: metrics.counters(&STREAMS),
        })
    }

    /// Counts a request.
    pub(crate) fn begin(self: &Arc<Self>, method: &http::Method, path: &str) -> ServedRequest {
        let path = path_label(path);
        let lasts = if LASTING.contains(&path) { "true" } else { "false" };
        let labels = [method_label(method), path, "readwrite", lasts];
        self.served.of(&labels).inc();
        self.in_flight.of(&labels).inc();
        ServedRequest {
            metrics: Arc::clone(self),
            labels,
            began: self.runtime.monotonic(),
        }
    }

    /// Counts a stream over WebSocket.
    pub(crate) fn websocket(&self, subresource: &str) {
        self.streams.of(&[subresource]).inc();
    }
}

impl Drop for ServedRequest {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        let took = metrics.runtime.monotonic().saturating_sub(self.began);
        metrics.in_flight.of(&self.labels).dec();
        metrics.durations.of(&self.labels).observe(took.as_secs_f64());
    }
}

fn method_label(method: &http::Method) -> &'static str {
    const METHODS: [&str; 8] = [
        "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT",
    ];
    let own = METHODS.into_iter().find(|own| *own == method.as_str());
    own.unwrap_or("other")
}

/// The first part of a path, the first two of those below `/metrics`; `other` for what is not served.
fn path_label(path: &str) -> &'static str {
    let mut parts = path.trim_start_matches('/').splitn(3, '/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    let own = match second.filter(|_| first == "metrics") {
        Some(second) => format!("metrics/{second}"),
        None => first.to_owned(),
    };
    PATHS.into_iter().find(|known| *known == own).unwrap_or("other")
}

/// Counts of requests to the API server.
#[derive(Debug, Clone)]
pub(crate) struct ClientMetrics {
    runtime: Runtime,
    host: Arc<str>,
    sent: Counters,
    durations: Histograms,
}

impl ClientMetrics {
    pub(crate) fn new(runtime: &Runtime, host: &str) -> Self {
        let metrics = runtime.metrics();
        Self {
            runtime: runtime.clone(),
            host: host.into(),
            sent: metrics.counters(&SENT),
            durations: metrics.histograms(&SENT_DURATION),
        }
    }

    /// Counts a request that began at a time and got this answer; `None` is an error.
    pub(crate) fn answered(&self, method: &str, began: Duration, code: Option<u16>) {
        let took = self.runtime.monotonic().saturating_sub(began);
        self.durations
            .of(&[&self.host, method])
            .observe(took.as_secs_f64());
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.sent.of(&[&code, &self.host, method]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_upstreams_paths() {
        for (path, label) in [
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/nothing", "other"),
            ("/containerLogs/ns/pod/main", "containerLogs"),
            ("/stats/summary", "stats"),
            ("/", "other"),
            ("/whatever", "other"),
        ] {
            assert_eq!(path_label(path), label, "{path}");
        }
        let other = http::Method::from_bytes(b"BREW").unwrap();
        assert_eq!(
            [method_label(&http::Method::GET), method_label(&other)],
            ["GET", "other"]
        );
    }

    #[tokio::test]
    async fn requests_are_in_flight_until_they_are_answered() {
        let runtime = Runtime::real();
        let metrics = ServerMetrics::new(&runtime);
        let labels = "long_running=\"true\",method=\"POST\",path=\"exec\",server_type=\"readwrite\"";
        let request = metrics.begin(&http::Method::POST, "/exec/ns/pod/main");
        let text = runtime.metrics().text();
        assert!(
            text.contains(&format!("kubelet_http_inflight_requests{{{labels}}} 1\n")),
            "{text}"
        );
        drop(request);
        let text = runtime.metrics().text();
        assert!(
            text.contains(&format!("kubelet_http_inflight_requests{{{labels}}} 0\n")),
            "{text}"
        );
        assert!(text.contains(&format!(
            "kubelet_http_requests_duration_seconds_count{{{labels}}} 1\n"
        )));
    }
}
