//! Events of services: their health check port cannot be served on this node, or they have fewer rules than they need.

use crate::health::Failed;
use crate::shares::Short;
use k8s_openapi::api::events::v1::Event;
use machinery_client::{ApiResource, Client};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Creates events in the background; one that is refused is logged and lost.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) node: String,
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
}

impl Recorder {
    /// Of health check ports.
    pub(crate) fn failed(&self) -> Failed {
        let own = self.clone();
        Arc::new(move |service, address, error| {
            let note = message(&own.node, service, address, error);
            own.create(service, &HEALTH, &note);
        })
    }

    /// Of services that have fewer rules than they need.
    pub(crate) fn short(&self) -> Short {
        let own = self.clone();
        Arc::new(move |service| own.create(service, &SHORT, &short_message(&own.node, service)))
    }

    fn create(&self, service: &str, about: &About, note: &str) {
        let Some((namespace, _)) = service.split_once('/') else {
            return;
        };
        let event = event(&self.node, service, about, note, self.runtime.now());
        let (client, namespace) = (self.client.clone(), namespace.to_owned());
        let create = async move {
            let created = client
                .create(&ApiResource::of::<Event>(), &namespace, &event)
                .await;
            if let Err(error) = created {
                tracing::warn!(%error, "the event of a service was not created");
            }
        };
        self.runtime.spawn("service event", create).detach();
    }
}

/// Reason and action of an event.
struct About {
    reason: &'static str,
    action: &'static str,
}

const HEALTH: About = About {
    reason: "FailedToStartServiceHealthcheck",
    action: "Listen",
};
const SHORT: About = About {
    reason: "TooManyServiceRules",
    action: "Sync",
};

fn short_message(node: &str, service: &str) -> String {
    format!(
        "node {node} has fewer rules for service \"{service}\" than it needs, as the services of its namespace have their share; some of its endpoints or ports are not reached from there"
    )
}

/// Upstream's words, Go's for the error included.
fn message(node: &str, service: &str, address: SocketAddrV4, error: &io::Error) -> String {
    let port = address.port();
    let cause = match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    format!(
        "node {node} failed to start healthcheck \"{service}\" on port {port}: listen tcp4 {address}: bind: {cause}"
    )
}

fn event(node: &str, service: &str, about: &About, note: &str, now: jiff::Timestamp) -> Value {
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{name}.{:x}", now.as_nanosecond())},
        "eventTime": format!("{now:.6}"),
        "regarding": {"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name},
        "type": "Warning",
        "reason": about.reason,
        "action": about.action,
        "note": note,
        "reportingController": "kube-proxy",
        "reportingInstance": format!("kube-proxy-{node}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_event_has_upstreams_words() {
        let taken = io::Error::from(io::ErrorKind::AddrInUse);
        let message = message(
            "n1",
            "ns/web",
            SocketAddrV4::new([0, 0, 0, 0].into(), 30_100),
            &taken,
        );
        assert_eq!(
            message,
            "node n1 failed to start healthcheck \"ns/web\" on port 30100: listen tcp4 0.0.0.0:30100: bind: address already in use"
        );
        let event = event("n1", "ns/web", &HEALTH, &message, jiff::Timestamp::UNIX_EPOCH);
        let event: Event = serde_json::from_value(event).unwrap();
        assert_eq!(event.regarding.unwrap().name.as_deref(), Some("web"));
        assert_eq!(event.note.as_deref(), Some(message.as_str()));
        assert_eq!(event.reporting_controller.as_deref(), Some("kube-proxy"));
        assert_eq!(event.reporting_instance.as_deref(), Some("kube-proxy-n1"));
        assert_eq!(event.metadata.name.as_deref(), Some("web.0"));
        assert_eq!(event.event_time.unwrap().0, jiff::Timestamp::UNIX_EPOCH);
    }
}
