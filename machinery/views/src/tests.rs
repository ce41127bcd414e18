//! Fields that each reader finds, and runs of the watches.

use crate::{Policy, Protocol, Service, ServiceViews, Slice};
use machinery_client::{Client, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::{Components, Runtime};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn project<P: Projection>(labels: &[(&str, &str)], json: &Value) -> P {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    let header = ObjectHeader {
        key: ObjectKey::new("ns", "web"),
        labels: labels.collect(),
        ..ObjectHeader::default()
    };
    P::project(&header, &serde_json::to_vec(json).unwrap()).unwrap()
}

fn service(labels: &[(&str, &str)], spec: &Value) -> Service {
    project(labels, &json!({"spec": spec}))
}

/// A service of everything that the proxy reads.
fn usual() -> Value {
    json!({"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5", "fd00::5"], "externalIPs": ["192.0.2.1"],
        "ports": [{"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053}], "sessionAffinity": "ClientIP",
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001, "loadBalancerSourceRanges": ["192.0.2.0/24"]})
}

#[test]
fn service_with_an_address_has_the_fields_of_both_readers() {
    let view = service(&[], &usual());
    assert_eq!(view.addresses.len(), 2, "both families have names");
    assert_eq!(view.cluster_ip, Some([10, 96, 0, 5].into()));
    let port = &view.ports[0];
    assert_eq!(
        (port.protocol, port.port, port.node_port),
        (Protocol::Udp, 53, 30_053)
    );
    assert_eq!(
        (view.external, view.health_check_port),
        (Policy::Local, Some(30_001))
    );
    assert_eq!(
        (view.affinity_seconds, view.source_ranges.len()),
        (Some(10_800), 1)
    );
}

/// The proxy has nothing to do for it; DNS has its names all the same.
#[track_caller]
fn check_is_named_alone(labels: &[(&str, &str)], change: (&str, &str)) {
    let mut spec = usual();
    spec[change.0] = json!(change.1);
    let view = service(labels, &spec);
    let named = Service {
        external_name: view.external_name.clone(),
        headless: view.headless,
        addresses: view.addresses.clone(),
        ports: view.ports.clone(),
        ..Service::default()
    };
    assert_eq!(view, named);
    assert!(!view.ports.is_empty());
}

#[test]
fn service_of_another_proxy_and_one_without_an_address_are_named_alone() {
    let other = [("service.kubernetes.io/service-proxy-name", "other")];
    check_is_named_alone(&other, ("clusterIP", "10.96.0.5"));
    check_is_named_alone(&[], ("clusterIP", "None"));
    check_is_named_alone(&[], ("type", "ExternalName"));
    let headless = service(&[], &json!({"clusterIP": "None"}));
    assert!(headless.headless && headless.addresses.is_empty());
}

#[test]
fn service_is_an_alias_by_its_type_alone() {
    let alias = service(
        &[],
        &json!({"type": "ExternalName", "externalName": "example.org"}),
    );
    assert_eq!(alias.external_name.as_deref(), Some("example.org"));
    let kept = service(
        &[],
        &json!({"clusterIP": "10.96.0.5", "externalName": "example.org"}),
    );
    assert_eq!(kept.external_name, None, "a name of an earlier type");
}

#[track_caller]
fn check_proxied(labels: &[(&str, &str)], family: &str, expected: (&str, bool)) {
    let endpoints = json!([{"addresses": ["10.244.0.2"], "hostname": "a", "nodeName": "n"}]);
    let json = json!({"addressType": family, "endpoints": endpoints, "ports": null});
    let slice: Slice = project(labels, &json);
    let names = slice.endpoints.first().map(|one| (one.hostname(), one.node()));
    assert!(expected.0.is_empty() || names == Some((Some("a"), Some("n"))));
    assert_eq!((&*slice.service, slice.is_proxied), expected);
}

#[test]
fn slice_is_proxied_where_it_is_of_ipv4_and_its_service_has_an_address() {
    let name = ("kubernetes.io/service-name", "web");
    let headless = ("service.kubernetes.io/headless", "");
    check_proxied(&[name], "IPv4", ("ns/web", true));
    check_proxied(&[name], "IPv6", ("ns/web", false));
    check_proxied(&[name], "FQDN", ("ns/web", false));
    check_proxied(&[name, headless], "IPv4", ("ns/web", false));
    check_proxied(&[], "IPv4", ("", false));
}

#[test]
fn endpoint_without_conditions_is_ready_and_serves() {
    let name = [("kubernetes.io/service-name", "web")];
    let endpoints = json!([{"addresses": ["10.244.0.2"]}, {"addresses": []}, {"addresses": ["::1"],
        "conditions": {"ready": false, "serving": true, "terminating": true}}]);
    let slice: Slice = project(&name, &json!({"addressType": "IPv4", "endpoints": endpoints}));
    let states = slice.endpoints.iter();
    let states: Vec<_> = states
        .map(|one| (one.ipv4().is_some(), one.ready, one.serving, one.terminating))
        .collect();
    assert_eq!(states, [(true, true, true, false), (false, false, true, true)]);
}

/// A server that counts requests and answers none.
fn silent(runtime: &Runtime, requests: &Arc<AtomicUsize>) -> Client {
    let requests = Arc::clone(requests);
    let call = move |_: http::Request<kube::client::Body>| {
        requests.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    };
    Client::in_process(tower::service_fn(call), runtime.clone())
}

async fn until(runtime: &Runtime, is_so: impl Fn() -> bool) {
    while !is_so() {
        runtime.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn service_views_end_with_a_run_of_their_watches_and_begin_again() {
    let runtime = Runtime::real();
    let requests = Arc::new(AtomicUsize::new(0));
    let views = ServiceViews::start(&silent(&runtime, &requests), &runtime);
    let made = |count: usize| {
        let requests = Arc::clone(&requests);
        until(&runtime, move || requests.load(Ordering::Relaxed) == count)
    };
    let components: &Components = runtime.components();
    let reading = views.during_a_run(|first| async {
        let _first = first;
        made(2).await;
        components.break_down(ServiceViews::COMPONENT);
        std::future::pending::<()>().await;
    });
    assert_eq!(reading.await, None, "the run ended below its reader");
    let again = views.during_a_run(|second| async {
        let _second = second;
        made(4).await;
    });
    // Another reader of the same run makes no request of its own.
    let other = views.during_a_run(|same| async move { same.services.has_synced() });
    assert_eq!(tokio::join!(again, other), (Some(()), Some(false)));
    assert_eq!(requests.load(Ordering::Relaxed), 4, "one list of each kind a run");
}
