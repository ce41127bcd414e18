//! `leaderElection` and `clientConnection`: checked as upstream does, and without effect, since the server elects and connects.

use super::document::{Document, Object};
use std::time::Duration;

/// Names of durations of an election, with their defaults in seconds.
const LEASE: (&str, u64) = ("leaseDuration", 15);
const RENEW: (&str, u64) = ("renewDeadline", 10);
const RETRY: (&str, u64) = ("retryPeriod", 2);
/// The only kind of lock that is left.
const LEASES: &str = "leases";

pub(super) fn leader_election(document: &mut Document, object: &mut Object<'_>) {
    let name = "leaderElection";
    object.has_no_effect(document, name);
    let mut own = object.object(document, name);
    let elects = own.take("leaderElect").is_none() || own.boolean(document, "leaderElect");
    let known = document.problems.len();
    let [lease, renew, _] = [LEASE, RENEW, RETRY].map(|(name, default)| {
        let given = own.duration(document, name, "must be greater than zero");
        given
            .filter(|own| !own.is_zero())
            .unwrap_or(Duration::from_secs(default))
    });
    if lease <= renew && document.problems.len() == known {
        let path = own.path(LEASE.0);
        document.invalid_duration(&path, renew, "must be greater than `RenewDeadline`");
    }
    let lock = own.string(document, "resourceLock");
    if !lock.is_empty() && &*lock != LEASES {
        let detail = "resourceLock value must be \"leases\"";
        document.invalid_text(&own.path("resourceLock"), &lock, detail);
    }
    if !elects {
        document.problems.truncate(known);
    }
    for name in ["resourceName", "resourceNamespace"] {
        own.string(document, name);
    }
    own.end(document);
}

pub(super) fn client_connection(document: &mut Document, object: &mut Object<'_>) {
    let name = "clientConnection";
    object.has_no_effect(document, name);
    let mut own = object.object(document, name);
    for name in ["kubeconfig", "acceptContentTypes", "contentType"] {
        own.string(document, name);
    }
    let qps = own.path("qps");
    if let Some(value) = own.take("qps").filter(|value| !value.is_number()) {
        document.invalid_shown(&qps, &value.to_string(), "must be a number");
    }
    let burst = own.integer(document, "burst", 0);
    if burst < 0 {
        document.invalid(&own.path("burst"), burst, "must be non-negative");
    }
    own.end(document);
}
