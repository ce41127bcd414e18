//! Events of services: their health check port cannot be served on this node, or they have fewer rules than they need.

use crate::health::Failed;
use crate::shares::Short;
use machinery_client::{Client, EventForm, EventRecorder, EventType, NewEvent, ObjectReference, Reporter};
use machinery_meta::ObjectKey;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

/// Records events of services in the background.
#[derive(Debug, Clone)]
pub(crate) struct ServiceEvents {
    node: String,
    recorder: EventRecorder,
}

impl ServiceEvents {
    pub(crate) fn new(client: &Client, node: &str) -> Self {
        let reporter = Reporter::new(EventForm::Series, "kube-proxy").instance(&format!("kube-proxy-{node}"));
        Self {
            node: node.to_owned(),
            recorder: EventRecorder::of(client.clone(), reporter),
        }
    }

    /// Recorder of failures of health check ports.
    pub(crate) fn failed(&self) -> Failed {
        let own = self.clone();
        Arc::new(move |service, address, error| {
            let note = message(&own.node, service, address, error);
            own.record(service, &HEALTH, note);
        })
    }

    /// Recorder of services that have fewer rules than they need.
    pub(crate) fn short(&self) -> Short {
        let own = self.clone();
        Arc::new(move |service| own.record(service, &SHORT, short_message(&own.node, service)))
    }

    fn record(&self, service: &str, about: &About, note: String) {
        let Some((namespace, name)) = service.split_once('/') else {
            return;
        };
        let service = ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            key: ObjectKey::new(namespace, name),
            ..ObjectReference::default()
        };
        let event = NewEvent::new(EventType::Warning, service, about.reason, note);
        self.recorder.record(event.action(about.action));
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
    }
}
