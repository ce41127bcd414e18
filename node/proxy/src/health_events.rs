//! The event of a service whose health check port cannot be served on this node.

use crate::health::Failed;
use k8s_openapi::api::events::v1::Event;
use machinery_client::{ApiResource, Client};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Creates the event in the background; one that is refused is logged and lost.
pub(crate) fn recorder(node: String, client: Client, runtime: Runtime) -> Failed {
    Arc::new(move |service, address, error| {
        let Some((namespace, _)) = service.split_once('/') else {
            return;
        };
        let event = event(
            &node,
            service,
            &message(&node, service, address, error),
            runtime.now(),
        );
        let (client, namespace) = (client.clone(), namespace.to_owned());
        let create = async move {
            let created = client
                .create(&ApiResource::of::<Event>(), &namespace, &event)
                .await;
            if let Err(error) = created {
                tracing::warn!(%error, "the event of a health check port was not created");
            }
        };
        runtime.spawn("health check event", create).detach();
    })
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

fn event(node: &str, service: &str, message: &str, now: jiff::Timestamp) -> Value {
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{name}.{:x}", now.as_nanosecond())},
        "eventTime": format!("{now:.6}"),
        "regarding": {"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name},
        "type": "Warning",
        "reason": "FailedToStartServiceHealthcheck",
        "action": "Listen",
        "note": message,
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
        let event = event("n1", "ns/web", &message, jiff::Timestamp::UNIX_EPOCH);
        let event: Event = serde_json::from_value(event).unwrap();
        assert_eq!(event.regarding.unwrap().name.as_deref(), Some("web"));
        assert_eq!(event.note.as_deref(), Some(message.as_str()));
        assert_eq!(event.reporting_controller.as_deref(), Some("kube-proxy"));
        assert_eq!(event.reporting_instance.as_deref(), Some("kube-proxy-n1"));
        assert_eq!(event.metadata.name.as_deref(), Some("web.0"));
        assert_eq!(event.event_time.unwrap().0, jiff::Timestamp::UNIX_EPOCH);
    }
}
