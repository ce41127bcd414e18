//! Services in, elements and scripts out; and a namespace in which they carry traffic.

use crate::conntrack::{Stale, stale};
use crate::elements::{Delta, Elements, Key, Value, Wanted};
use crate::model::{Protocol, Service, Slice};
use crate::{rules, table};
use machinery_client::Projection;
use machinery_meta::{ObjectHeader, ObjectKey};
use serde_json::{Value as Json, json};
use std::net::Ipv4Addr;
use std::sync::Arc;

fn service(spec: &Json) -> Service {
    let json = serde_json::to_vec(&json!({"spec": spec})).unwrap();
    Service::project(&ObjectHeader::default(), &json).unwrap()
}

fn slice(endpoints: &Json, ports: &Json) -> Slice {
    let header = ObjectHeader {
        key: ObjectKey::new("ns", "web-1"),
        labels: vec![("kubernetes.io/service-name".into(), "web".into())],
        ..ObjectHeader::default()
    };
    let json = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    Slice::project(&header, &serde_json::to_vec(&json).unwrap()).unwrap()
}

fn web(endpoints: &Json) -> Slice {
    slice(endpoints, &json!([{"name": "", "protocol": "TCP", "port": 8080}]))
}

/// Lines of additions, one element each.
#[track_caller]
fn check(spec: Json, endpoints: Json, expected: &[&str]) {
    let slices = [web(&endpoints)];
    let wanted = rules::wanted(&service(&spec), slices.iter(), "here");
    let mut lines = Vec::new();
    for (key, value) in wanted {
        lines.push(
            table::additions([(key, value)].into_iter())
                .replace("add element ip knarr-proxy ", "")
                .trim()
                .to_owned(),
        );
    }
    assert_eq!(lines, expected);
}

#[test]
fn a_service_is_a_few_elements() {
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}),
        json!([{"addresses": ["10.244.0.2"], "nodeName": "here"}, {"addresses": ["10.244.1.2"], "conditions": {"ready": true}}]),
        &[
            "to_c2 { 10.96.0.5 . tcp . 80 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 0 : 10.244.0.2 . 8080 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 1 : 10.244.1.2 . 8080 }",
            "to_p2 { tcp . 30080 }",
            "nodeport_endpoints { tcp . 30080 . 0 : 10.244.0.2 . 8080 }",
            "nodeport_endpoints { tcp . 30080 . 1 : 10.244.1.2 . 8080 }",
            "masquerades { 10.96.0.5 . tcp . 80 }",
            "nodeport_masquerades { tcp . 30080 }",
            "frontends { 10.96.0.5 }",
            "nodeports { tcp . 30080 }",
            "hairpin { 10.244.0.2 . 10.244.0.2 }",
            "hairpin { 10.244.1.2 . 10.244.1.2 }",
            "cluster_ips { 10.96.0.5 }",
        ],
    );
}

#[test]
fn nobody_there_is_refused_and_nobody_here_is_dropped() {
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}),
        json!([{"addresses": ["10.244.0.2"], "conditions": {"ready": false}}]),
        &["refused { 10.96.0.5 . tcp . 80 }", "cluster_ips { 10.96.0.5 }"],
    );
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "nodePort": 30080}], "externalTrafficPolicy": "Local",
            "sessionAffinity": "ClientIP"}),
        json!([{"addresses": ["10.244.1.2"], "nodeName": "there"}]),
        &[
            "to_ch1 { 10.96.0.5 . tcp . 80 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 0 : 10.244.1.2 . 8080 }",
            "masquerades { 10.96.0.5 . tcp . 80 }",
            "nodeport_dropped { tcp . 30080 }",
            "frontends { 10.96.0.5 }",
            "hairpin { 10.244.1.2 . 10.244.1.2 }",
            "cluster_ips { 10.96.0.5 }",
        ],
    );
}

#[test]
fn a_slice_without_endpoints_says_null() {
    assert!(slice(&Json::Null, &Json::Null).endpoints.is_empty());
}

#[test]
fn terminating_endpoints_serve_when_nobody_is_ready() {
    let leaving = json!({"ready": false, "serving": true, "terminating": true});
    let ports = json!([{"port": 80}]);
    check(
        json!({"clusterIP": "10.96.0.5", "ports": ports}),
        json!([{"addresses": ["10.244.0.2"], "conditions": leaving}]),
        &[
            "to_c1 { 10.96.0.5 . tcp . 80 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 0 : 10.244.0.2 . 8080 }",
            "masquerades { 10.96.0.5 . tcp . 80 }",
            "frontends { 10.96.0.5 }",
            "hairpin { 10.244.0.2 . 10.244.0.2 }",
            "cluster_ips { 10.96.0.5 }",
        ],
    );
    check(
        json!({"clusterIP": "None", "ports": ports}),
        json!([{"addresses": ["10.244.0.2"]}]),
        &[],
    );
    check(
        json!({"type": "ExternalName", "externalName": "a.b"}),
        json!([]),
        &[],
    );
}

#[test]
fn many_endpoints_share_slots_evenly() {
    let endpoints: Vec<Json> = (1..=50)
        .map(|last| json!({"addresses": [format!("10.244.0.{last}")]}))
        .collect();
    let slices = [web(&json!(endpoints))];
    let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
    let wanted = rules::wanted(&service(&spec), slices.iter(), "here");
    let of = |last: u8| {
        let target = Value::Target(Ipv4Addr::new(10, 244, 0, last), 8080);
        wanted.values().filter(|value| **value == target).count()
    };
    assert_eq!((of(1), of(50)), (6, 5));
}

#[test]
fn a_change_is_only_what_differs() {
    let mut elements = Elements::default();
    let (first, second): (Arc<str>, Arc<str>) = (Arc::from("ns/a"), Arc::from("ns/b"));
    let key = Key::NodePort(Protocol::Tcp, 30080);
    let one = |slots| {
        Wanted::from([(
            key,
            Value::Spread {
                slots,
                by_client: false,
            },
        )])
    };
    let mut delta = Delta::default();
    elements.set(&first, &one(1), &mut delta);
    elements.set(&second, &one(2), &mut delta);
    assert_eq!(
        table::change(&delta),
        "add element ip knarr-proxy to_p1 { tcp . 30080 }\n"
    );
    let mut delta = Delta::default();
    elements.set(&first, &one(3), &mut delta);
    assert_eq!(
        table::change(&delta),
        "delete element ip knarr-proxy to_p1 { tcp . 30080 }\n\
         add element ip knarr-proxy to_p3 { tcp . 30080 }\n"
    );
    // Within one transaction, back to what the kernel has: nothing to do.
    elements.set(&first, &one(1), &mut delta);
    assert!(delta.is_empty());
    elements.set(&first, &Wanted::new(), &mut delta);
    assert!(
        table::change(&delta).ends_with("to_p2 { tcp . 30080 }\n"),
        "the second in order takes over"
    );
}

#[test]
fn udp_flows_to_gone_endpoints_are_forgotten() {
    let address = Ipv4Addr::new(10, 96, 0, 10);
    let to = |last: u8| Value::Target(Ipv4Addr::new(10, 244, 0, last), 53);
    let key = |slot| Key::Endpoint(address, Protocol::Udp, 53, slot);
    let flow = |target: Option<u8>| Stale {
        destination: Some(address),
        port: 53,
        target: target.map(|last| Ipv4Addr::new(10, 244, 0, last)),
    };
    let before = Wanted::from([(key(0), to(1)), (key(1), to(2))]);
    let after = Wanted::from([(key(0), to(2))]);
    assert_eq!(stale(&before, &after), [flow(Some(1))].into());
    assert_eq!(stale(&Wanted::new(), &after), [flow(None)].into());
    assert_eq!(
        flow(Some(1)).arguments().join(" "),
        "-D -f ipv4 -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --dst-nat 10.244.0.1"
    );
}

#[test]
fn the_chains_do_not_depend_on_services() {
    let base = table::base(Some("10.244.0.0/16".parse().unwrap()));
    assert_eq!(base.matches(" chain ").count(), 84);
    assert!(base.starts_with("table ip knarr-proxy\ndelete table ip knarr-proxy\n"));
}
