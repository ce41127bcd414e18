//! Connections through the table, in network namespaces of our own.
//!
//! A node namespace with two pods and a client outside. The table is made from services as the proxy makes it; what is
//! asserted is the server that answered, and the client that it saw.

#![allow(clippy::unwrap_used, reason = "a test")]

mod affinity;
mod policies;
mod repair;
mod world;

use machinery_client::Projection;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_views::{Protocol, Service, Slice};
use node_proxy::elements::{Delta, Elements, Frontend, Key, Scope, Value as Element, Wanted};
use node_proxy::rules::NodeFacts;
use node_proxy::{netlink, rules, table};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use world::World;

const HERE: NodeFacts<'_> = NodeFacts {
    node: "here",
    node_ip: None,
};

/// The elements of a service with these endpoints, each on a node.
fn elements_of(object: &Value, endpoints: &[(&str, &str)], before: &Wanted) -> Wanted {
    let bytes = |value: &Value| serde_json::to_vec(value).unwrap();
    let service = Service::project(&ObjectHeader::default(), &bytes(object)).unwrap();
    let slices = [slice_of(endpoints)];
    rules::wanted(&service, slices.iter(), HERE, before)
}

fn slice_of(endpoints: &[(&str, &str)]) -> Slice {
    let header = ObjectHeader {
        key: ObjectKey::new("ns", "s"),
        labels: vec![("kubernetes.io/service-name".into(), "s".into())],
        ..ObjectHeader::default()
    };
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(one, node)| json!({"addresses": [one], "nodeName": node}))
        .collect();
    let ports = json!([{"name": "t", "port": 8080}, {"name": "u", "protocol": "UDP", "port": 5353}]);
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    Slice::project(&header, &serde_json::to_vec(&slice).unwrap()).unwrap()
}

fn wanted(spec: &Value, endpoints: &[&str]) -> Wanted {
    let here: Vec<(&str, &str)> = endpoints.iter().map(|one| (*one, "here")).collect();
    elements_of(&json!({"spec": spec}), &here, &Wanted::new())
}

fn whole_table(wanted: Wanted) -> String {
    table::base(
        Some("10.244.0.0/16".parse().unwrap()),
        &node_proxy::NodePortAddresses::default(),
    ) + &table::additions(wanted.into_iter())
}

/// CPU time of this thread; the kernel's work on our behalf is in it.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
#[ignore = "needs root: makes network namespaces"]
async fn services_carry_traffic() {
    let world = World::new('s').await;
    let pods = ["10.244.0.2", "10.244.0.3"];
    let ports = json!([{"name": "t", "port": 80, "nodePort": 30080},
        {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let mut all = wanted(&json!({"clusterIP": "10.96.0.5", "ports": ports}), &pods);
    all.append(&mut wanted(
        &json!({"clusterIP": "10.96.0.6", "sessionAffinity": "ClientIP", "ports": [{"name": "t", "port": 80}]}),
        &pods,
    ));
    all.append(&mut wanted(
        &json!({"clusterIP": "10.96.0.7", "ports": [{"name": "t", "port": 80}]}),
        &[],
    ));
    all.append(&mut wanted(
        &json!({"clusterIP": "10.96.0.8", "externalTrafficPolicy": "Local",
            "ports": [{"name": "t", "port": 80, "nodePort": 30081}]}),
        &pods[..1],
    ));
    world.apply(whole_table(all)).await;
    world.serve("pod1");
    world.serve("pod2");

    // A pod keeps its address, except where it reaches itself.
    let to_both = set(&["pod1 saw 10.244.0.1", "pod2 saw 10.244.0.2"]);
    assert_eq!(world.ask("pod1", "10.96.0.5:80", 40), to_both);
    assert_eq!(world.ask("pod1", "10.96.0.5:53", 40), to_both);
    // What comes from elsewhere gets the node's, unless traffic stays on the node anyway.
    let outside = set(&["pod1 saw 10.244.0.1", "pod2 saw 10.244.0.1"]);
    assert_eq!(world.ask("node", "10.96.0.5:80", 40), outside);
    assert_eq!(world.ask("out", "192.0.2.1:30080", 40), outside);
    assert_eq!(world.ask("out", "192.0.2.1:30053", 40), outside);
    assert_eq!(world.ask("node", "192.0.2.1:30080", 40), outside);
    assert_eq!(world.ask("pod1", "192.0.2.1:30080", 40), outside);
    assert_eq!(
        world.ask("out", "192.0.2.1:30081", 5),
        set(&["pod1 saw 192.0.2.2"])
    );
    // One client, one server; no endpoint, no answer.
    assert_eq!(world.ask("pod1", "10.96.0.6:80", 20).len(), 1);
    assert_eq!(world.ask("pod1", "10.96.0.7:80", 1), set(&["connection refused"]));
    assert_eq!(world.ask("node", "10.96.0.7:80", 1), set(&["connection refused"]));
    assert_eq!(world.ask("pod1", "10.96.0.5:81", 1), set(&["connection refused"]));

    // One endpoint goes: a few elements change. What is not there cannot be deleted, and then nothing is.
    let fewer = wanted(&json!({"clusterIP": "10.96.0.5", "ports": ports}), &pods[1..]);
    let service: Arc<str> = Arc::from("ns/s");
    let (mut elements, mut delta) = (Elements::default(), Delta::default());
    elements.set(
        &service,
        &wanted(&json!({"clusterIP": "10.96.0.5", "ports": ports}), &pods),
        &mut delta,
    );
    let mut delta = Delta::default();
    elements.set(&service, &fewer, &mut delta);
    delta.delete.retain(|key, _| !matches!(key, Key::Hairpin(_)));
    world.inside("node", || netlink::batch(&delta).apply()).unwrap();
    assert_eq!(
        world.ask("pod1", "10.96.0.5:80", 10),
        set(&["pod2 saw 10.244.0.2"])
    );
    let again = world
        .inside("node", || netlink::batch(&delta).apply())
        .unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::NotFound);

    // Thirty thousand services more.
    let many = |range: std::ops::Range<u32>| {
        let mut delta = Delta::default();
        for index in range {
            let address = Ipv4Addr::from(0x0a61_0000 + index);
            let frontend = Frontend::Address(address, Protocol::Tcp, 80);
            delta.add.insert(
                Key::Service(frontend, Scope::Cluster),
                Element::Spread { slots: 2 },
            );
            delta.add.insert(Key::Masquerade(frontend), Element::Nothing);
            for slot in 0..2 {
                let target = Element::Target(Ipv4Addr::new(10, 244, 0, 2), 8080);
                delta
                    .add
                    .insert(Key::Endpoint(frontend, Scope::Cluster, slot), target);
            }
        }
        delta
    };
    let (all, one) = (many(0..30_000), many(30_000..30_001));
    let took = |delta: &Delta| {
        let begun = cpu();
        netlink::batch(delta).apply().unwrap();
        cpu() - begun
    };
    let (all, one) = world.inside("node", || (took(&all), took(&one)));
    let more: Vec<Delta> = (30_001..30_101).map(|index| many(index..index + 1)).collect();
    let each = world.inside("node", || more.iter().map(took).sum::<Duration>()) / 100;
    eprintln!("30,000 services: {all:?} CPU; the next: {one:?} CPU; those after it: {each:?} CPU each");
}
