//! Services in, elements and scripts out; and a namespace in which they carry traffic.

use crate::config::ProxyConfig;
use crate::driver::without_own_addresses;
use crate::elements::{Delta, Elements, Frontend, Key, Scope, Value, Wanted};
use crate::flows::Flows;
use crate::rules::NodeFacts;
use crate::{rules, table};
use machinery_client::Projection;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_views::{Protocol, Service, Slice};
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

const HERE: NodeFacts<'_> = NodeFacts {
    node: "here",
    node_ip: Some(Ipv4Addr::new(192, 0, 2, 1)),
};

fn wanted(spec: &Json, endpoints: &Json, before: &Wanted) -> Wanted {
    let slices = [web(endpoints)];
    rules::wanted(&service(spec), slices.iter(), HERE, before)
}

/// Lines of additions, one element each.
#[track_caller]
fn check(spec: Json, endpoints: Json, expected: &[&str]) {
    let wanted = wanted(&spec, &endpoints, &Wanted::new());
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
fn proxy_service_is_a_few_elements() {
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]}),
        json!([{"addresses": ["10.244.0.2"], "nodeName": "here"}, {"addresses": ["10.244.1.2"], "conditions": {"ready": true}}]),
        &[
            "to_c2 { 10.96.0.5 . tcp . 80 }",
            "to_p2 { tcp . 30080 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 0 : 10.244.0.2 . 8080 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 1 : 10.244.1.2 . 8080 }",
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
fn proxy_service_without_endpoints_is_rejected_or_dropped() {
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}),
        json!([{"addresses": ["10.244.0.2"], "conditions": {"ready": false}}]),
        &["refused { 10.96.0.5 . tcp . 80 }", "cluster_ips { 10.96.0.5 }"],
    );
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "nodePort": 30080}], "externalTrafficPolicy": "Local"}),
        json!([{"addresses": ["10.244.1.2"], "nodeName": "there"}]),
        &[
            "to_c1 { 10.96.0.5 . tcp . 80 }",
            "to_p1 { tcp . 30080 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 0 : 10.244.1.2 . 8080 }",
            "nodeport_endpoints { tcp . 30080 . 0 : 10.244.1.2 . 8080 }",
            "masquerades { 10.96.0.5 . tcp . 80 }",
            "nodeport_locals { tcp . 30080 }",
            "nodeport_dropped { tcp . 30080 }",
            "frontends { 10.96.0.5 }",
            "nodeports { tcp . 30080 }",
            "hairpin { 10.244.1.2 . 10.244.1.2 }",
            "cluster_ips { 10.96.0.5 }",
        ],
    );
}

#[test]
fn affinity_notes_endpoints_for_the_time_of_the_service() {
    check(
        json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 4}}}),
        json!([{"addresses": ["10.244.1.2"]}]),
        &[
            "to_c1 { 10.96.0.5 . tcp . 80 }",
            "endpoints { 10.96.0.5 . tcp . 80 . 0 : 10.244.1.2 . 8080 }",
            "masquerades { 10.96.0.5 . tcp . 80 }",
            "frontends { 10.96.0.5 }",
            "affine { 10.96.0.5 . tcp . 80 }",
            "sticky5 { 10.96.0.5 . tcp . 80 . 10.244.1.2 . 8080 }",
            "hairpin { 10.244.1.2 . 10.244.1.2 }",
            "cluster_ips { 10.96.0.5 }",
        ],
    );
}

#[test]
fn source_ranges_restrict_addresses_of_the_balancer_alone() {
    let spec = json!({"spec": {"clusterIP": "10.96.0.5", "externalIPs": ["198.51.100.9"], "ports": [{"port": 80}],
            "loadBalancerSourceRanges": ["203.0.113.0/24", "203.0.113.128/25", " 192.0.2.0/24", "2001:db8::/32"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.5"}]}}});
    let service = Service::project(&ObjectHeader::default(), &serde_json::to_vec(&spec).unwrap()).unwrap();
    let slices = [web(&json!([{"addresses": ["10.244.0.2"]}]))];
    let wanted = rules::wanted(&service, slices.iter(), HERE, &Wanted::new());
    let about = |key: &Key| matches!(key, Key::Restricted(..) | Key::Allowed(..));
    let text = table::additions(wanted.into_iter().filter(|(key, _)| about(key)));
    // The node is in a range, so its own traffic, which has the balancer's address, comes through too.
    assert_eq!(
        text,
        "add element ip knarr-proxy allowed { 198.51.100.5 . tcp . 80 . 192.0.2.0/24, \
         198.51.100.5 . tcp . 80 . 198.51.100.5/32, 198.51.100.5 . tcp . 80 . 203.0.113.0/24 }\n\
         add element ip knarr-proxy restricted { 198.51.100.5 . tcp . 80 }\n"
    );
}

#[test]
fn proxy_slice_without_endpoints_is_null() {
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
fn proxy_many_endpoints_share_slots_evenly() {
    let endpoints: Vec<Json> = (1..=50)
        .map(|last| json!({"addresses": [format!("10.244.0.{last}")]}))
        .collect();
    let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]});
    let wanted = wanted(&spec, &json!(endpoints), &Wanted::new());
    let of = |last: u8| {
        let target = Value::Target(Ipv4Addr::new(10, 244, 0, last), 8080);
        wanted.values().filter(|value| **value == target).count()
    };
    assert_eq!((of(1), of(50)), (11, 10));
}

#[test]
fn proxy_change_is_the_difference_only() {
    let mut elements = Elements::default();
    let (first, second): (Arc<str>, Arc<str>) = (Arc::from("ns/a"), Arc::from("ns/b"));
    let key = Key::Service(Frontend::NodePort(Protocol::Tcp, 30080), Scope::Cluster);
    let one = |slots| Wanted::from([(key, Value::Spread { slots })]);
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

/// A rolling update of many endpoints, one by one: what changes in the kernel is at most twice the share of what
/// changed, for each of the service's frontends.
#[test]
fn elements_change_by_the_share_of_what_changed() {
    let spec = json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "nodePort": 30080}]});
    for count in [3_usize, 17, 33, 100] {
        let mut addresses: Vec<String> = (0..count)
            .map(|index| format!("10.244.{}.{}", index / 250, index % 250))
            .collect();
        let endpoints = |addresses: &[String]| -> Json {
            addresses.iter().map(|one| json!({"addresses": [one]})).collect()
        };
        let name: Arc<str> = Arc::from("ns/web");
        let mut elements = Elements::default();
        let first = wanted(&spec, &endpoints(&addresses), &Wanted::new());
        elements.set(&name, &first, &mut Delta::default());
        let slots = first
            .keys()
            .filter(|key| matches!(key, Key::Endpoint(..)))
            .count();
        for round in 0..count.min(20) {
            addresses[round] = format!("10.245.{}.{}", round / 250, round % 250);
            let after = wanted(&spec, &endpoints(&addresses), &elements.of(&name));
            let mut delta = Delta::default();
            elements.set(&name, &after, &mut delta);
            let slot = |key: &&Key| matches!(key, Key::Endpoint(..));
            let changed = delta.add.keys().filter(slot).count();
            assert!(
                changed <= 2 * slots.div_ceil(count),
                "{changed} of {slots} slots of {count} endpoints"
            );
            // The endpoint itself, as one that might reach itself.
            assert_eq!(delta.add.len() - changed, 1);
            assert_eq!(delta.delete.len(), delta.add.len());
        }
    }
}

#[test]
fn udp_flows_to_gone_endpoints_are_looked_for() {
    let spec = json!({"clusterIP": "10.96.0.10", "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]});
    let of = |endpoints: Json| {
        let slices = [slice(
            &endpoints,
            &json!([{"name": "dns", "protocol": "UDP", "port": 5353}]),
        )];
        Flows::of(&service(&spec), slices.iter(), 100)
    };
    let none = of(json!([]));
    let one = of(json!([{"addresses": ["10.244.0.1"]}]));
    let leaving = json!({"ready": false, "serving": true, "terminating": true});
    let two =
        of(json!([{"addresses": ["10.244.0.1"], "conditions": leaving}, {"addresses": ["10.244.0.2"]}]));
    assert!(Flows::changed(&one, &two).is_empty(), "one more disturbs nobody");
    assert!(Flows::changed(&two, &two).is_empty());
    assert_eq!(Flows::changed(&two, &one), one, "one is gone");
    assert_eq!(Flows::changed(&none, &one), one, "the first is there");
    assert_eq!(Flows::changed(&one, &none), none, "none is left");
    let tcp = json!({"clusterIP": "10.96.0.10", "ports": [{"name": "dns", "port": 53}]});
    assert!(Flows::of(&service(&tcp), std::iter::empty::<&Slice>(), 100).is_empty());
}

#[test]
fn external_addresses_of_the_cluster_itself_are_left_out() {
    let config = ProxyConfig {
        node_name: "here".to_owned(),
        node_ip: HERE.node_ip,
        cluster_cidr: Some("10.244.0.0/16".parse().unwrap()),
        service_cidr: Some("10.96.0.0/16".parse().unwrap()),
        local_addresses: vec![Ipv4Addr::new(169, 254, 20, 10)],
        node_port_addresses: crate::NodePortAddresses::default(),
    };
    let own = [
        "10.96.0.1",
        "10.96.9.9",
        "10.244.3.4",
        "192.0.2.1",
        "169.254.20.10",
    ];
    let left = |externals: &[&str]| {
        let service = service(&json!({"clusterIP": "10.96.0.5", "externalIPs": externals}));
        without_own_addresses(&service, &config).external_ips.clone()
    };
    assert_eq!(left(&own), [Ipv4Addr::UNSPECIFIED; 0]);
    let other = Ipv4Addr::new(198, 51, 100, 7);
    assert_eq!(left(&["10.96.0.1", "198.51.100.7"]), [other]);
    assert_eq!(left(&["198.51.100.7"]), [other]);
}

/// Each round takes one endpoint away, so that slots move.
#[test]
fn service_of_many_ports_and_endpoints_has_bounded_elements() {
    let names: Vec<Json> = (1..=1_000)
        .map(|port| json!({"name": format!("p{port}"), "protocol": "UDP", "port": port}))
        .collect();
    let mut spec = json!({"clusterIP": "10.96.0.5", "ports": names, "sessionAffinity": "ClientIP"});
    let mut endpoints: Vec<Json> = (0..100)
        .map(|at| json!({"addresses": [format!("10.244.0.{at}")]}))
        .collect();
    let mut before = Wanted::new();
    for policy in ["Cluster", "Local"] {
        spec["externalTrafficPolicy"] = json!(policy);
        endpoints.pop();
        let slices = [slice(&json!(endpoints), &json!(names))];
        let service = service(&spec);
        before = rules::wanted(&service, slices.iter(), HERE, &before);
        let slots = before
            .keys()
            .filter(|key| matches!(key, Key::Endpoint(..)))
            .count();
        assert!((20_000..=65_536).contains(&slots), "{slots} of {policy}");
        assert!(before.len() <= 3 * 65_536, "{} of {policy}", before.len());
        let flows = Flows::of(&service, slices.iter(), before.len());
        assert!(!flows.is_empty());
    }
}
