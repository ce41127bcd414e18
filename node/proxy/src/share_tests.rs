//! Shares of namespaces: many large services of one, and a small one of another.

use crate::elements::{Key, Wanted};
use crate::plans::{Plans, Work};
use crate::rules::{NodeFacts, planned};
use crate::shares::RuleShares;
use machinery_client::Projection;
use machinery_fuzz::held;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::Runtime;
use machinery_views::{Service, Slice};
use serde_json::{Value as Json, json};
use std::sync::{Arc, Mutex};

const HERE: NodeFacts<'_> = NodeFacts {
    node: "here",
    node_ip: None,
};

fn service(spec: &Json) -> Service {
    let status = spec.get("status").cloned().unwrap_or_else(|| json!({}));
    let json = serde_json::to_vec(&json!({"spec": spec, "status": status})).unwrap();
    Service::project(&ObjectHeader::default(), &json).unwrap()
}

/// A number of ports.
fn ports(count: u16) -> Json {
    let of = |port: u16| json!({"name": format!("p{port}"), "protocol": "TCP", "port": port});
    (1..=count).map(of).collect()
}

fn slice(ports: &Json, endpoints: usize) -> Slice {
    let header = ObjectHeader {
        key: ObjectKey::new("n", "s-1"),
        labels: vec![("kubernetes.io/service-name".into(), "s".into())],
        ..ObjectHeader::default()
    };
    let endpoint = |at: usize| {
        let node = if at.is_multiple_of(2) { "here" } else { "there" };
        json!({"addresses": [format!("10.244.{}.{}", at / 250, at % 250)], "nodeName": node})
    };
    let endpoints: Json = (0..endpoints).map(endpoint).collect();
    let json = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    Slice::project(&header, &serde_json::to_vec(&json).unwrap()).unwrap()
}

/// Plans, and the services that were reported to be short.
fn plans() -> (Plans, Arc<Mutex<Vec<String>>>, Runtime) {
    let runtime = Runtime::real();
    let said = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&said);
    let short = Arc::new(move |service: &str| list.lock().unwrap().push(service.to_owned()));
    (Plans::new(RuleShares::new(runtime.clone(), short)), said, runtime)
}

fn metrics(runtime: &Runtime, name: &str) -> f64 {
    let families = runtime.metrics().gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    family
        .get_metric()
        .iter()
        .map(|one| one.get_gauge().get_value())
        .sum()
}

/// An attacker's services: 3 GB in each agent, of 6 MB of objects.
#[tokio::test]
async fn share_of_rules_bounds_a_hundred_large_services() {
    let ports = ports(1_000);
    let (large, endpoints) = (
        service(&json!({"clusterIP": "10.96.0.5", "ports": ports})),
        [slice(&ports, 17)],
    );
    let (small, few) = (
        service(&json!({"clusterIP": "10.96.0.9", "ports": [{"name": "p1", "port": 1}]})),
        [slice(&json!([{"name": "p1", "port": 1}]), 3)],
    );
    let (mut plans, said, runtime) = plans();
    let before = held();
    for at in 0..100 {
        let mut service = large.clone();
        service.cluster_ip = Some([10, 96, 1, at].into());
        let name: Arc<str> = format!("greedy/s{at}").into();
        plans.set(&name, &service, endpoints.iter(), HERE, &mut Work::default());
    }
    let bytes = held().saturating_sub(before);
    eprintln!("{} elements in {} MB", plans.elements().len(), bytes >> 20);
    assert!(plans.elements().len() <= (1 << 18) + 100, "and an address each");
    assert!(bytes < 40 << 20, "{bytes} bytes");
    assert!(metrics(&runtime, "knarr_proxy_services_short_of_rules") >= 95.0);
    assert_eq!(
        said.lock().unwrap().len(),
        20,
        "the log and events are bounded, too"
    );
    let modest: Arc<str> = "modest/s".into();
    plans.set(&modest, &small, few.iter(), HERE, &mut Work::default());
    let whole = planned(&small, few.iter(), HERE, &Wanted::new(), usize::MAX);
    assert_eq!(plans.elements().of(&modest), whole.elements);
    // The first one goes: others take its place, not all of them.
    assert!(plans.due().is_empty());
    let none = Service::default();
    plans.set(
        &"greedy/s0".into(),
        &none,
        endpoints.iter(),
        HERE,
        &mut Work::default(),
    );
    let mut grown = 0;
    for name in plans.due() {
        if plans.is_due(&name) {
            let service: Arc<str> = name.into();
            let had = plans.elements().of(&service).len();
            plans.set(&service, &large, endpoints.iter(), HERE, &mut Work::default());
            grown += usize::from(plans.elements().of(&service).len() > had);
        }
    }
    assert!((1..10).contains(&grown), "{grown} took what one had");
    assert!(plans.elements().len() <= (1 << 18) + 100);
}

#[track_caller]
fn check(spec: &Json, endpoints: usize) {
    let service = service(spec);
    let slices = [slice(&spec["ports"], endpoints)];
    let whole = planned(&service, slices.iter(), HERE, &Wanted::new(), usize::MAX);
    assert_eq!(whole.needs, whole.elements.len(), "{spec}");
    let mut last = 0;
    for room in [0, 1, 5, 20, 50, 100, 200, 500, 1_000, 3_000, 10_000, 100_000] {
        let plan = planned(&service, slices.iter(), HERE, &Wanted::new(), room);
        let elements = plan.elements.len();
        assert!(elements <= room.max(1), "{elements} where {room} fit: {spec}");
        assert!(
            elements >= last,
            "{elements} where {room} fit, {last} before: {spec}"
        );
        assert_eq!(plan.needs > elements, elements < whole.elements.len(), "{spec}");
        // Nothing leads to a slot that is not there.
        for (key, value) in &plan.elements {
            if let (Key::Service(frontend, scope), crate::elements::Value::Spread { slots }) = (key, value) {
                let there = |slot| {
                    plan.elements
                        .contains_key(&Key::Endpoint(*frontend, *scope, slot))
                };
                assert!(*slots > 0 && (0..*slots).all(there), "{spec}");
            }
        }
        last = elements;
    }
    assert!(
        last == whole.elements.len(),
        "{last} of {}: {spec}",
        whole.elements.len()
    );
}

#[test]
fn share_of_rules_is_never_exceeded_whatever_the_service() {
    for endpoints in [0, 1, 3, 17, 100] {
        for policy in ["Cluster", "Local"] {
            for affinity in ["None", "ClientIP"] {
                check(
                    &json!({"clusterIP": "10.96.0.5", "ports": ports(6), "sessionAffinity": affinity,
                        "internalTrafficPolicy": policy}),
                    endpoints,
                );
                check(
                    &json!({"clusterIP": "10.96.0.5", "ports": [{"name": "p1", "port": 1, "nodePort": 30_001}], "sessionAffinity": affinity,
                        "externalTrafficPolicy": policy, "externalIPs": ["198.51.100.1", "198.51.100.2"],
                        "loadBalancerSourceRanges": ["203.0.113.0/24", "192.0.2.0/24"],
                        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.5"}]}}}),
                    endpoints,
                );
            }
        }
    }
}
