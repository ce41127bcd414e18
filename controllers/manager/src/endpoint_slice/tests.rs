//! Tables for endpoints and for changes of slices.

use super::plan::{SliceRef, addresses, desired, labels, plan};
use super::reconcile::planned;
use super::view::SliceView;
use crate::views::{PodView, ServiceView};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde_json::{Value, json};
use std::sync::Arc;

fn service() -> Object<ServiceView> {
    let json = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}], "ipFamilies": ["IPv4"]}});
    object_of(&json.to_string()).unwrap()
}

fn pod(name: &str, ip: &str, ready: bool, change: Value) -> Arc<Object<PodView>> {
    let mut json = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node"},
        "status": {"phase": "Running", "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    });
    for (part, fields) in change.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            json[part][key] = value.clone();
        }
    }
    Arc::new(object_of(&json.to_string()).unwrap())
}

fn slice(name: &str, ips: &[String]) -> SliceRef {
    let pods: Vec<_> = ips.iter().map(|ip| pod(ip, ip, true, json!({}))).collect();
    let (groups, _) = desired(&service(), &pods, |_| None);
    let endpoints = groups.into_values().next().unwrap();
    let json = json!({"metadata": {"name": name, "namespace": "n", "labels": labels(&service())}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints});
    Arc::new(object_of::<SliceView>(&json.to_string()).unwrap())
}

fn ips(range: std::ops::Range<usize>) -> Vec<String> {
    range
        .map(|number| format!("10.0.{}.{}", number / 200, number % 200 + 1))
        .collect()
}

#[track_caller]
fn check(
    existing: &[SliceRef],
    wanted: &[String],
    create: &[usize],
    update: &[(&str, usize)],
    delete: &[&str],
) {
    let pods: Vec<_> = wanted.iter().map(|ip| pod(ip, ip, true, json!({}))).collect();
    let plan = plan(
        desired(&service(), &pods, |_| None),
        &labels(&service()),
        existing,
    );
    assert_eq!(
        plan.create
            .iter()
            .map(|(_, _, own)| own.len())
            .collect::<Vec<_>>(),
        create,
        "create"
    );
    let updates: Vec<_> = plan
        .update
        .iter()
        .map(|(slice, own)| (slice.name(), own.len()))
        .collect();
    assert_eq!(updates, update, "update");
    assert_eq!(
        plan.delete.iter().map(|slice| slice.name()).collect::<Vec<_>>(),
        delete,
        "delete"
    );
}

#[test]
fn slices_change_as_little_as_they_can() {
    check(&[], &ips(0..3), &[3], &[], &[]);
    check(&[], &ips(0..250), &[100, 100, 50], &[], &[]);
    check(&[slice("a", &ips(0..3))], &ips(0..3), &[], &[], &[]);
    check(&[slice("a", &ips(0..3))], &ips(0..4), &[], &[("a", 4)], &[]);
    check(&[slice("a", &ips(0..3))], &[], &[0], &[], &["a"]);
    let two = [slice("a", &ips(0..2)), slice("b", &ips(2..4))];
    check(&two, &ips(0..2), &[], &[], &["b"]);
    check(
        &two,
        &[&ips(0..2)[..], &ips(3..5)[..]].concat(),
        &[],
        &[("b", 2)],
        &[],
    );
}

#[test]
fn endpoint_slice_of_service_without_endpoints_is_empty() {
    let plan = plan(desired(&service(), &[], |_| None), &labels(&service()), &[]);
    assert_eq!(plan.create.len(), 1);
    assert!(plan.create[0].1.is_empty() && plan.create[0].2.is_empty());
}

#[test]
fn endpoint_slice_has_labels_of_its_service() {
    let mut changed = json!({"metadata": {"name": "web", "namespace": "n", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        "ipFamilies": ["IPv4"]}});
    let pods = [pod("10.0.0.1", "10.0.0.1", true, json!({}))];
    let existing = [slice("a", &ips(0..1))];
    let updates = |service: &Object<ServiceView>| {
        let plan = plan(desired(service, &pods, |_| None), &labels(service), &existing);
        assert!(plan.create.is_empty() && plan.delete.is_empty());
        plan.update.len()
    };
    assert_eq!(updates(&service()), 0);
    let labelled = object_of(&changed.to_string()).unwrap();
    assert_eq!(
        (updates(&labelled), labels(&labelled).get("team")),
        (1, Some(&"a"))
    );
    changed["metadata"]["labels"] = json!({});
    changed["spec"]["clusterIP"] = json!("None");
    let headless: Object<ServiceView> = object_of(&changed.to_string()).unwrap();
    assert_eq!(
        (updates(&headless), labels(&headless).get(super::HEADLESS)),
        (1, Some(&""))
    );
}

#[test]
fn endpoints_say_how_their_pods_are() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let ended = json!({"status": {"phase": "Succeeded"}});
    let named = json!({"spec": {"nodeName": "node", "hostname": "h", "subdomain": "web"}});
    let pods = [
        pod("a", "10.0.0.1", true, json!({})),
        pod("b", "10.0.0.2", false, json!({})),
        pod("c", "10.0.0.3", true, deleting),
        pod("d", "10.0.0.4", true, ended),
        pod("e", "10.0.0.5", true, named),
    ];
    let (groups, _) = desired(&service(), &pods, |_| Some("z".to_owned()));
    let endpoints = groups.values().next().unwrap();
    assert_eq!(
        addresses(endpoints),
        ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.5"]
    );
    let state = |at: usize| {
        let own = endpoints[at].conditions;
        (own.ready, own.serving, own.terminating)
    };
    assert_eq!(state(0), (true, true, false));
    assert_eq!(state(1), (false, false, false));
    assert_eq!(state(2), (false, true, true));
    assert_eq!(endpoints[3].hostname.as_deref(), Some("h"));
    assert_eq!(endpoints[0].zone.as_deref(), Some("z"));
}

#[test]
fn labels_of_a_service_are_copied_as_far_as_they_have_room() {
    let mut own = service();
    let label = |at: usize| (format!("k{at:05}").into(), "v".repeat(60).into());
    let mut header = machinery_meta::ObjectHeader::clone(&own.header);
    header.labels = (0..2_000).map(label).collect();
    own.header = Arc::new(header);
    let copied = labels(&own);
    assert_eq!(copied.len(), 65_536 / 66 + 2);
    assert_eq!(copied["kubernetes.io/service-name"], "web");
}

/// A node says which addresses its pods have; one that validation refuses would stop the service's endpoints for good.
#[test]
fn pods_at_addresses_that_no_endpoint_may_have_are_left_out() {
    let pods = [
        pod("a", "10.0.0.1", true, json!({})),
        pod("b", "127.0.0.1", true, json!({})),
        pod("c", "169.254.169.254", true, json!({})),
    ];
    let (groups, _) = desired(&service(), &pods, |_| None);
    let found: Vec<usize> = groups.values().map(Vec::len).collect();
    assert_eq!(found, [1]);
}

/// Each pod that has another number for a name has a group of its own, with all ports of the service.
#[test]
fn ports_of_a_services_groups_are_bounded() {
    let ports: Vec<Value> = (0..1_000).map(|number| json!({"name": format!("p{number}"), "port": number + 1, "targetPort": "p", "protocol": "TCP"})).collect();
    let service = json!({"metadata": {"name": "web", "namespace": "n"},
        "spec": {"selector": {"app": "web"}, "ports": ports, "ipFamilies": ["IPv4"]}});
    let service = object_of(&service.to_string()).unwrap();
    let of = |number: usize| {
        let container =
            json!([{"name": "c", "ports": [{"name": "p", "containerPort": number + 1, "protocol": "TCP"}]}]);
        let ip = format!("10.0.0.{}", number + 1);
        pod(&ip, &ip, true, json!({"spec": {"containers": container}}))
    };
    let pods: Vec<_> = (0..40).map(of).collect();
    let (groups, left_out) = desired(&service, &pods, |_| None);
    let all: usize = groups.keys().map(|(_, ports)| ports.len()).sum();
    assert_eq!((groups.len(), all, left_out), (16, 16_000, 24));
    let plan = plan((groups, left_out), &labels(&service), &[]);
    assert_eq!(plan.left_out, 24, "the reconciler says so");
}

/// Few are planned at once, on the thread of the controller.
#[tokio::test]
async fn endpoints_of_many_pods_and_ports_take_their_turn() {
    let runtime = machinery_runtime::Runtime::real();
    let ports: Vec<Value> = (1..=1_000)
        .map(|number| json!({"name": format!("p{number}"), "port": number, "targetPort": number, "protocol": "TCP"}))
        .collect();
    let large = json!({"metadata": {"name": "web", "namespace": "n"},
        "spec": {"selector": {"app": "web"}, "ports": ports, "ipFamilies": ["IPv4"]}});
    let large: Arc<Object<ServiceView>> = Arc::new(object_of(&large.to_string()).unwrap());
    let pods = |count: usize| -> Vec<_> {
        let all = ips(0..count);
        all.iter().map(|ip| pod(ip, ip, true, json!({}))).collect()
    };
    let turns = || runtime.heavy_figures().turns;
    let few = planned(&runtime, &Arc::new(service()), pods(10), |_| None, Vec::new()).await;
    assert_eq!((few.added, turns()), (10, 0));
    let many = planned(&runtime, &large, pods(100), |_| None, Vec::new()).await;
    assert_eq!(many.added, 100);
    assert!(turns() > 0);
}
