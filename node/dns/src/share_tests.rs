//! Shares of namespaces: many large services of one, and a small one of another.

use crate::keeper::Keeper;
use crate::records::brought;
use crate::zone::{Found, Zone};
use machinery_fuzz::held;
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use machinery_views::{Endpoint, Protocol, Service, ServicePort, Slice, SlicePort};
use std::sync::{Arc, RwLock};

/// A slice of a headless service.
fn slice(ports: u16, endpoints: u8) -> Slice {
    let port = |port: u16| SlicePort {
        name: format!("p{port}").into(),
        protocol: Protocol::Tcp,
        port: Some(port),
    };
    let endpoint = |last: u8| Endpoint {
        address: [10, 244, 0, last].into(),
        names: None,
        ready: true,
        serving: true,
        terminating: false,
    };
    Slice {
        service: "n/s".into(),
        is_proxied: false,
        endpoints: (0..endpoints).map(endpoint).collect(),
        ports: (1..=ports).map(port).collect(),
    }
}

fn headless() -> Service {
    Service {
        headless: true,
        ..Service::default()
    }
}

fn metric(runtime: &Runtime, name: &str) -> f64 {
    let families = runtime.metrics().gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    family
        .get_metric()
        .iter()
        .map(|one| one.get_gauge().get_value())
        .sum()
}

/// A hundred services of a thousand ports and 33 endpoints were 3.3 million records.
#[tokio::test]
async fn share_of_records_bounds_a_hundred_large_services() {
    let runtime = Runtime::real();
    let zone = Arc::new(RwLock::new(Zone::new("cluster.local")));
    let mut keeper = Keeper::new(Arc::clone(&zone), runtime.clone());
    let (large, slices) = (headless(), [slice(1_000, 33)]);
    let before = held();
    let key = |at: usize| ObjectKey::new("greedy", format!("s{at}"));
    (0..100).for_each(|at| keeper.set(&key(at), Some(&large), slices.iter()));
    let records = |zone: &RwLock<Zone>| -> usize {
        let zone = zone.read().unwrap();
        zone.brought_by_service().map(|(_, brought)| brought.len()).sum()
    };
    let bytes = held().saturating_sub(before);
    eprintln!("{} records in {} MB", records(&zone), bytes >> 20);
    assert!(records(&zone) <= (1 << 18) + 100, "and the namespace with each");
    assert!(bytes < 50 << 20, "{bytes} bytes");
    assert!(metric(&runtime, "knarr_dns_services_short_of_records") >= 80.0);
    // Another namespace is answered in full.
    let modest = ObjectKey::new("modest", "s");
    keeper.set(&modest, Some(&large), [slice(2, 3)].iter());
    let name = "_p2._tcp.s.modest.svc.cluster.local";
    assert!(matches!(zone.read().unwrap().find(name), Found::Records(all) if all.len() == 3));
    // Addresses of a service are there whatever its namespace has.
    let plain = Service {
        addresses: ["10.96.0.7".parse().unwrap()].into(),
        ports: [ServicePort {
            name: "p".into(),
            port: 1,
            ..ServicePort::default()
        }]
        .into(),
        ..Service::default()
    };
    keeper.set(&ObjectKey::new("greedy", "late"), Some(&plain), [].iter());
    assert!(
        matches!(zone.read().unwrap().find("late.greedy.svc.cluster.local"), Found::Records(all) if all.len() == 1)
    );
    // One goes: others take its place.
    assert!(keeper.due().is_empty());
    let had = records(&zone);
    keeper.set(&key(0), None, [].iter());
    let left = records(&zone);
    let due = keeper.due();
    assert!(!due.is_empty());
    for other in due {
        if keeper.is_due(&other) {
            keeper.set(&other, Some(&large), slices.iter());
        }
    }
    assert!(
        records(&zone) > left && records(&zone) <= had + 100,
        "{left} of {had}"
    );
}

#[test]
fn share_of_records_is_never_exceeded() {
    let key = ObjectKey::new("n", "s");
    for (ports, endpoints) in [(0, 5), (1, 1), (20, 7), (1, 200)] {
        let slices = [slice(ports, endpoints)];
        let make = |room| brought("cluster.local", &key, &headless(), slices.iter(), room);
        let whole = make(usize::MAX);
        assert_eq!(whole.needs, whole.records.len());
        for room in [0, 1, 5, 20, 100, 500] {
            let part = make(room);
            // The namespace is beside them.
            assert!(
                part.records.len() <= room + 1,
                "{} where {room} fit",
                part.records.len()
            );
            if part.records.len() < whole.records.len() {
                assert!(part.needs > part.records.len(), "{ports} {endpoints} {room}");
            }
        }
    }
}

/// Records of a saved zone are counted, and given back with its service.
#[tokio::test]
async fn share_of_records_counts_a_zone_that_was_there() {
    let mut saved = Zone::new("cluster.local");
    let key = ObjectKey::new("n", "s");
    let slices = [slice(1_000, 33)];
    let made = brought("cluster.local", &key, &headless(), slices.iter(), usize::MAX);
    let count = made.records.len();
    saved.put(&key, made.records);
    let runtime = Runtime::real();
    let mut keeper = Keeper::new(Arc::new(RwLock::new(saved)), runtime.clone());
    let all = || metric(&runtime, "knarr_dns_records");
    assert_eq!(all(), f64::from(u32::try_from(count).unwrap()));
    keeper.set(&key, None, [].iter());
    assert_eq!(all(), 0.0);
}
