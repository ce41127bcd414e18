//! Decision on one range; pure.

use super::view::CidrView;
use super::{FINALIZER, READY, STILL_USED, rest_of_grace};
use crate::views::{find, time};
use jiff::Timestamp;
use machinery_client::Object;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Put the finalizer on it.
    Hold,
    SayReady,
    /// Say that addresses hold it.
    SayUsed,
    /// Nothing holds it; look again after this time.
    Wait(Duration),
    /// Take the finalizer away.
    Release,
}

/// `others` are all ranges but this one, `addresses` those of services.
pub(super) fn step(
    cidr: &Object<CidrView>,
    others: &[Arc<Object<CidrView>>],
    addresses: impl Iterator<Item = IpAddr>,
    now: Timestamp,
) -> Step {
    let held = cidr.header.finalizers.iter().any(|own| &**own == FINALIZER);
    let Some(deleted) = time(cidr.header.deletion_timestamp.as_deref()) else {
        return match held {
            false => Step::Hold,
            true if says(cidr, "True", READY) => Step::Nothing,
            true => Step::SayReady,
        };
    };
    if !held {
        return Step::Nothing;
    }
    if is_needed(cidr, others, addresses) {
        return match says(cidr, "False", STILL_USED) {
            true => Step::Nothing,
            false => Step::SayUsed,
        };
    }
    rest_of_grace(deleted, now).map_or(Step::Release, Step::Wait)
}

fn says(cidr: &CidrView, status: &str, message: &str) -> bool {
    find(&cidr.conditions, "Ready").is_some_and(|own| own.status == status && own.message == message)
}

/// Without it an address would be in no range that stays.
fn is_needed(
    cidr: &CidrView,
    others: &[Arc<Object<CidrView>>],
    mut addresses: impl Iterator<Item = IpAddr>,
) -> bool {
    let staying = || others.iter().filter(|other| !other.header.is_deleting());
    let covered = |range| staying().any(|other| other.covers(range));
    if cidr.ranges.iter().all(covered) {
        return false;
    }
    addresses.any(|address| cidr.contains(address) && !staying().any(|other| other.contains(address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_client::object::object_of;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn cidr(name: &str, range: &str, deleted: Option<&str>) -> Value {
        let mut own = json!({"metadata": {"name": name, "uid": name, "finalizers": [FINALIZER]},
            "spec": {"cidrs": [range]}});
        if let Some(deleted) = deleted {
            own["metadata"]["deletionTimestamp"] = json!(deleted);
        }
        own
    }

    fn object(own: &Value) -> Object<CidrView> {
        object_of(&own.to_string()).unwrap()
    }

    #[track_caller]
    fn check(own: &Value, others: &[Value], addresses: &[&str], expected: &Step) {
        let others: Vec<_> = others.iter().map(|other| Arc::new(object(other))).collect();
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        let found = step(&object(own), &others, addresses, NOW.parse().unwrap());
        assert_eq!(found, *expected);
    }

    #[test]
    fn service_cidr_kept_is_protected_and_ready() {
        let mut own = cidr("a", "10.0.0.0/24", None);
        check(&own, &[], &[], &Step::SayReady);
        own["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "message": READY}]});
        check(&own, &[], &["10.0.0.1"], &Step::Nothing);
        own["metadata"]["finalizers"] = json!(["example.com/other"]);
        check(&own, &[], &[], &Step::Hold);
    }

    #[test]
    fn service_cidr_is_removed_when_unused() {
        let own = cidr("a", "10.0.0.0/24", Some("2026-01-01T00:00:00Z"));
        let wider = cidr("b", "10.0.0.0/16", None);
        let half = cidr("c", "10.0.0.0/25", None);
        let going = cidr("d", "10.0.0.0/16", Some("2026-01-01T00:00:00Z"));
        check(&own, &[], &[], &Step::Release);
        check(&own, &[], &["10.0.0.7"], &Step::SayUsed);
        // Not an address of it: the last of an IPv4 range is not assigned.
        check(&own, &[], &["10.0.0.255", "10.0.1.7"], &Step::Release);
        check(&own, &[wider], &["10.0.0.7"], &Step::Release);
        check(&own, std::slice::from_ref(&half), &["10.0.0.7"], &Step::Release);
        check(&own, &[half], &["10.0.0.200"], &Step::SayUsed);
        check(&own, &[going], &["10.0.0.7"], &Step::SayUsed);
    }

    #[test]
    fn service_cidr_stays_for_its_grace_period() {
        let own = cidr("a", "10.0.0.0/24", Some("2026-01-01T00:00:57Z"));
        check(&own, &[], &[], &Step::Wait(Duration::from_secs(7)));
        let mut told = cidr("a", "10.0.0.0/24", Some("2026-01-01T00:00:57Z"));
        told["status"] = json!({"conditions": [{"type": "Ready", "status": "False", "message": STILL_USED}]});
        check(&told, &[], &["10.0.0.7"], &Step::Nothing);
        told["metadata"]["finalizers"] = json!([]);
        check(&told, &[], &[], &Step::Nothing);
    }
}
