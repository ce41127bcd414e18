//! Tables for endpoints and for changes of slices.

use super::metrics::SHORT;
use super::plan::{NodeZone, SliceRef, addresses, desired, labels, plan};
use super::reconcile::planned;
use super::view::{Endpoint, SliceView};
use crate::endpoint_shares::{EndpointShares, PlanCost};
use crate::views::{PodView, ServiceView};
use machinery_client::Object;
use machinery_client::object::object_of;
use machinery_meta::ObjectKey;
use serde_json::{Value, json};
use std::sync::Arc;

/// All nodes are known, and in no zone.
fn no_zone(_: &str) -> Option<NodeZone> {
    Some(NodeZone::default())
}

/// Room for everything.
const ALL: usize = usize::MAX;

fn service() -> Object<ServiceView> {
    let json = json!({"metadata": {"name": "web", "namespace": "n", "uid": "s"}, "spec": {"selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}], "ipFamilies": ["IPv4"]}});
    object_of(&json.to_string()).unwrap()
}

fn owner() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s", "controller": true})
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
    let groups = desired(&service(), &pods, no_zone, ALL).groups;
    let endpoints = groups.into_values().next().unwrap();
    let json = json!({"metadata": {"name": name, "namespace": "n", "labels": labels(&service()), "ownerReferences": [owner()]}, "addressType": "IPv4",
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
    let plan = plan(desired(&service(), &pods, no_zone, ALL), &service(), existing);
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
        .map(|(slice, _, own)| (slice.name(), own.len()))
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
    check(&[slice("a", &ips(0..3))], &[], &[], &[("a", 0)], &[]);
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
    let plan = plan(desired(&service(), &[], no_zone, ALL), &service(), &[]);
    assert_eq!(plan.create.len(), 1);
    assert!(plan.create[0].1.is_empty() && plan.create[0].2.is_empty());
}

#[test]
fn endpoint_slice_has_labels_of_its_service() {
    let mut changed = json!({"metadata": {"name": "web", "namespace": "n", "uid": "s", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}],
        "ipFamilies": ["IPv4"]}});
    let pods = [pod("10.0.0.1", "10.0.0.1", true, json!({}))];
    let existing = [slice("a", &ips(0..1))];
    let updates = |service: &Object<ServiceView>| {
        let plan = plan(desired(service, &pods, no_zone, ALL), service, &existing);
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
    let groups = desired(&service(), &pods, |_| Some(NodeZone(Some("z".to_owned()))), ALL).groups;
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

/// Two pods of a node's network have one address: an old and a new one of a rolling update, say.
#[test]
fn endpoints_that_share_an_address_are_told_apart_by_their_pods() {
    let made = |pods: &[Arc<Object<PodView>>]| desired(&service(), pods, no_zone, ALL);
    let names = |endpoints: &[Endpoint]| {
        let named = endpoints
            .iter()
            .map(|own| (own.target_ref.clone().unwrap().name, own.conditions.ready));
        named.collect::<Vec<_>>()
    };
    let of = |name: &str, ready| pod(name, "10.0.0.1", ready, json!({}));
    let pair = [of("new", false), of("old", true)];
    let created = plan(made(&pair), &service(), &[]).create;
    assert_eq!(created.len(), 1);
    let both = [("new".to_owned(), false), ("old".to_owned(), true)];
    assert_eq!(names(&created[0].2), both);
    let json = json!({"metadata": {"name": "a", "namespace": "n", "labels": labels(&service()), "ownerReferences": [owner()]}, "addressType": "IPv4",
        "ports": created[0].1, "endpoints": created[0].2});
    let existing = [Arc::new(object_of::<SliceView>(&json.to_string()).unwrap())];
    // In any order of the pods, nothing is left to change.
    let reversed = [of("old", true), of("new", false)];
    let same = plan(made(&reversed), &service(), &existing);
    assert!(same.create.is_empty() && same.update.is_empty() && same.delete.is_empty());
    // One becomes ready in its place, and the other goes alone.
    let turned = plan(made(&[of("new", true)]), &service(), &existing);
    assert_eq!(names(&turned.update[0].2), [("new".to_owned(), true)]);
    assert_eq!((turned.added, turned.removed), (0, 1));
    // A pod of another name takes the address of one that went.
    let replaced = plan(made(&[of("next", true), of("old", true)]), &service(), &existing);
    let both = [("old".to_owned(), true), ("next".to_owned(), true)];
    assert_eq!(names(&replaced.update[0].2), both);
    assert_eq!((replaced.added, replaced.removed), (1, 1));
}

/// A node says which addresses its pods have; one that validation refuses would stop the service's endpoints for good.
#[test]
fn pods_at_addresses_that_no_endpoint_may_have_are_left_out() {
    let pods = [
        pod("a", "10.0.0.1", true, json!({})),
        pod("b", "127.0.0.1", true, json!({})),
        pod("c", "169.254.169.254", true, json!({})),
    ];
    let groups = desired(&service(), &pods, no_zone, ALL).groups;
    let found: Vec<usize> = groups.values().map(Vec::len).collect();
    assert_eq!(found, [1]);
}

/// A service of a thousand ports that are all the pods' port `p`.
fn large_service(name: &str, namespace: &str) -> Object<ServiceView> {
    let ports: Vec<Value> = (0..1_000).map(|number| json!({"name": format!("p{number}"), "port": number + 1, "targetPort": "p", "protocol": "TCP"})).collect();
    let service = json!({"metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": "web"}, "ports": ports, "ipFamilies": ["IPv4"]}});
    object_of(&service.to_string()).unwrap()
}

/// Pods each of which has another number for its port `p`.
fn pods_of_other_numbers(count: usize) -> Vec<Arc<Object<PodView>>> {
    let of = |number: usize| {
        let container =
            json!([{"name": "c", "ports": [{"name": "p", "containerPort": number + 1, "protocol": "TCP"}]}]);
        let ip = format!("10.0.0.{}", number + 1);
        pod(&ip, &ip, true, json!({"spec": {"containers": container}}))
    };
    (0..count).map(of).collect()
}

/// Each pod that has another number for a name has a group of its own, with all ports of the service.
#[test]
fn ports_of_a_services_groups_are_bounded() {
    let (service, pods) = (large_service("web", "n"), pods_of_other_numbers(40));
    let made = desired(&service, &pods, no_zone, ALL);
    let all: usize = made.groups.keys().map(|(_, ports)| ports.len()).sum();
    assert_eq!((made.groups.len(), all, made.left_out), (16, 16_000, 24));
    let plan = plan(made, &service, &[]);
    assert_eq!(plan.left_out, 24, "the reconciler says so");
}

/// An attacker's 25 services, 1.5 MB of objects, were 294 slices of a thousand ports, and the server stood still.
#[tokio::test]
async fn ports_of_all_services_of_a_namespace_are_bounded() {
    let runtime = machinery_runtime::Runtime::real();
    let shares = EndpointShares::new(&runtime, &SHORT);
    let pods = pods_of_other_numbers(100);
    let take = |service: &Object<ServiceView>| {
        let made = desired(service, &pods, no_zone, shares.room(service.key()));
        let cost = PlanCost {
            part: made.part,
            steps: 0,
        };
        let taken = shares.take(service.key(), cost, 0).unwrap();
        let ports: usize = made.groups.keys().map(|(_, ports)| ports.len()).sum();
        let endpoints: usize = made.groups.values().map(Vec::len).sum();
        (ports, endpoints, taken)
    };
    let (mut ports, mut short) = (0, 0);
    for at in 0..25 {
        let (own, _, taken) = take(&large_service(&format!("s{at}"), "greedy"));
        ports += own;
        short += usize::from(taken.is_short);
    }
    assert!((30_000..=32_768).contains(&ports), "{ports} ports in slices");
    assert_eq!(short, 23, "two have room for the ports of 16 pods");
    let rest = shares.rest("greedy");
    assert!(rest > std::time::Duration::from_secs(3), "{rest:?}");
    // Another namespace has what it needs.
    let (own, endpoints, taken) = take(&large_service("s", "modest"));
    assert_eq!((own, endpoints, taken.is_short), (16_000, 16, false));
    // One service goes: the room is another's.
    let due = shares.note(&ObjectKey::new("greedy", "s0"), 0);
    assert!(!due.is_empty());
    let (own, _, _) = take(&large_service(&due[0].name, "greedy"));
    assert!(own >= 1_000, "{own}");
}

/// A slice more of the same ports counts as well.
#[test]
fn endpoints_count_with_the_ports_of_each_slice() {
    let of = |count: usize| {
        let pods: Vec<_> = ips(0..count)
            .iter()
            .map(|ip| pod(ip, ip, true, json!({})))
            .collect();
        desired(&service(), &pods, no_zone, ALL).part
    };
    assert_eq!((of(0).has, of(1).has, of(100).has, of(101).has), (0, 9, 108, 117));
    let pods: Vec<_> = ips(0..101)
        .iter()
        .map(|ip| pod(ip, ip, true, json!({})))
        .collect();
    let made = desired(&service(), &pods, no_zone, 50);
    assert_eq!((made.part.has, made.part.needs), (50, 109));
    assert_eq!(super::plan::slice_units(&slice("a", &ips(0..3))), 11);
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
    let few = planned(&runtime, &Arc::new(service()), pods(10), no_zone, Vec::new(), ALL).await;
    assert_eq!((few.added, turns()), (10, 0));
    let many = planned(&runtime, &large, pods(100), no_zone, Vec::new(), ALL).await;
    assert_eq!(many.added, 100);
    assert!(turns() > 0);
}
