//! Upstream's tables of endpoint slices (`k8s.io/endpointslice` 1.37: `reconciler_test.go`, `utils_test.go`), in
//! `testdata/endpoint_slice.json`. Which endpoint goes to which slice is left open upstream: sizes are compared, and what
//! all slices have together.

use super::plan::{NodeZone, Plan, SliceRef, desired, labels, plan};
use super::view::{Endpoint, Port, SliceView};
use crate::views::{PodView, ServiceView};
use machinery_client::Object;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMESPACE: &str = "test";

#[derive(Deserialize)]
struct Tables {
    reconcile: Vec<ReconcileRow>,
    endpoints: Vec<EndpointRow>,
    families: Vec<FamiliesRow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReconcileRow {
    name: String,
    service: Value,
    nodes: Vec<NodeFields>,
    pods: Vec<Value>,
    #[serde(default)]
    many_pods: Vec<Many>,
    existing: Vec<Slice>,
    /// Family and number of endpoints of the slices that are made and written.
    create: Vec<(String, usize)>,
    update: Vec<(String, usize)>,
    delete: Vec<String>,
    /// Labels of slices that are made or written.
    labels: Vec<Map<String, Value>>,
    /// Ports of all slices in the end.
    ports: Vec<Value>,
    /// Endpoints of all slices in the end, where there are few.
    endpoints: Option<Vec<Value>>,
    /// Numbers of the pods that have one.
    served: Option<Vec<Numbers>>,
    /// Reason for which the row is not held to.
    differs: Option<String>,
}

#[derive(Deserialize)]
struct NodeFields {
    name: String,
    zone: Option<String>,
}

/// First, last and step.
type Numbers = (usize, usize, usize);

/// Objects that differ by their number alone.
#[derive(Deserialize)]
struct Many {
    like: Value,
    numbers: Vec<Numbers>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slice {
    name: String,
    labels: Value,
    address_type: String,
    ports: Value,
    endpoints: Vec<Value>,
    #[serde(default)]
    many_endpoints: Vec<Many>,
    #[serde(default)]
    foreign: bool,
}

#[derive(Deserialize)]
struct EndpointRow {
    name: String,
    pod: Value,
    zone: Option<String>,
    service: Value,
    endpoint: Value,
}

#[derive(Deserialize)]
struct FamiliesRow {
    name: String,
    service: Value,
    families: Vec<String>,
    differs: Option<String>,
}

fn tables() -> Tables {
    serde_json::from_str(include_str!("../../testdata/endpoint_slice.json")).unwrap()
}

impl Many {
    fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        self.numbers.clone().into_iter().flat_map(|own| numbers(&own))
    }
}

fn numbers((first, last, step): &Numbers) -> impl Iterator<Item = usize> + use<> {
    (*first..=*last).step_by(*step)
}

/// The address of a pod by its number.
fn address(number: usize) -> String {
    let at = number + 4;
    format!("1.2.{}.{}", 3 + at / 256, at % 256)
}

fn service_of(json: &Value) -> Object<ServiceView> {
    let mut json = json.clone();
    json["metadata"]["namespace"] = json!(NAMESPACE);
    json["metadata"]["uid"] = json!("s");
    if json["metadata"]["name"].is_null() {
        json["metadata"]["name"] = json!("foo");
    }
    // Upstream takes a Service without an address for headless; a stored one has `None`.
    if json["spec"]["clusterIP"].is_null() {
        json["spec"]["clusterIP"] = json!("None");
    }
    object_of(&json.to_string()).unwrap()
}

/// Upstream hands in the pods that the service selects.
fn pod_of(json: &Value, service: &Object<ServiceView>) -> Arc<Object<PodView>> {
    let mut json = json.clone();
    json["metadata"]["namespace"] = json!(NAMESPACE);
    for (key, value) in service.selector.iter() {
        json["metadata"]["labels"][key.to_string()] = json!(value.to_string());
    }
    Arc::new(object_of(&json.to_string()).unwrap())
}

fn pods_of(row: &ReconcileRow, service: &Object<ServiceView>) -> Vec<Arc<Object<PodView>>> {
    let few = row.pods.iter().map(|json| pod_of(json, service));
    let many = row
        .many_pods
        .iter()
        .flat_map(|many| many.numbers().map(move |number| (many, number)));
    let many = many.map(|(many, number)| {
        let mut json = many.like.clone();
        json["metadata"]["name"] = json!(format!("pod{number}"));
        json["status"]["podIPs"] = json!([{"ip": address(number)}]);
        pod_of(&json, service)
    });
    few.chain(many).collect()
}

/// A slice of a row, with the labels of the controller's own where the row has none: upstream compares the service's alone.
fn slice_of(slice: &Slice, service: &Object<ServiceView>) -> SliceRef {
    let own = labels(service).into_iter();
    let reserved = own.filter(|(key, _)| !service.header.labels.iter().any(|(label, _)| &**label == *key));
    let mut labels: BTreeMap<String, Value> = reserved
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    let given = slice.labels.as_object().into_iter().flatten();
    labels.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    let few = slice.endpoints.iter().cloned();
    let many = slice
        .many_endpoints
        .iter()
        .flat_map(|many| many.numbers().map(move |number| (many, number)));
    let many = many.map(|(many, number)| {
        let mut json = many.like.clone();
        json["addresses"] = json!([address(number)]);
        json["targetRef"]["name"] = json!(format!("pod{number}"));
        json
    });
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": "foo", "controller": true,
        "uid": if slice.foreign { "another" } else { "s" }});
    let metadata =
        json!({"name": slice.name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]});
    let json = json!({"metadata": metadata, "addressType": slice.address_type, "ports": slice.ports,
        "endpoints": few.chain(many).collect::<Vec<_>>()});
    Arc::new(object_of::<SliceView>(&json.to_string()).unwrap())
}

/// Without what is empty and without uids.
fn clean(value: &Value) -> Value {
    match value {
        Value::Object(own) => {
            let own = own
                .iter()
                .filter(|(key, _)| *key != "uid")
                .map(|(key, value)| (key.clone(), clean(value)));
            let empty = [Value::Null, json!({}), json!([]), json!("")];
            own.filter(|(_, value)| !empty.contains(value)).collect()
        }
        Value::Array(own) => own.iter().map(clean).collect(),
        other => other.clone(),
    }
}

fn sorted(mut all: Vec<Value>) -> Vec<Value> {
    all.sort_by_key(Value::to_string);
    all
}

/// Slices in the end: ports and endpoints.
fn after(plan: &Plan, existing: &[SliceRef]) -> Vec<(Vec<Port>, Vec<Endpoint>)> {
    let mut all: BTreeMap<String, _> = existing
        .iter()
        .map(|slice| {
            (
                slice.name().to_owned(),
                (slice.ports.clone(), slice.endpoints.clone()),
            )
        })
        .collect();
    for slice in &plan.delete {
        all.remove(slice.name());
    }
    for (slice, ports, endpoints) in &plan.update {
        all.insert(slice.name().to_owned(), (ports.clone(), endpoints.clone()));
    }
    let made = plan
        .create
        .iter()
        .map(|(_, ports, endpoints)| (ports.clone(), endpoints.clone()));
    all.into_values().chain(made).collect()
}

fn differences(row: &ReconcileRow) -> Vec<String> {
    let service = service_of(&row.service);
    let node = |name: &str| {
        let found = row.nodes.iter().find(|own| own.name == name)?;
        Some(NodeZone(found.zone.clone()))
    };
    let existing: Vec<SliceRef> = row
        .existing
        .iter()
        .map(|slice| slice_of(slice, &service))
        .collect();
    let made = desired(&service, &pods_of(row, &service), node, usize::MAX);
    let plan = plan(made, &service, &existing);
    let mut all = Vec::new();
    let mut compare = |what: &str, seen: Value, expected: Value| {
        if seen != expected {
            all.push(format!("{}: {what} is {seen}, not {expected}", row.name));
        }
    };
    let mut create: Vec<_> = plan
        .create
        .iter()
        .map(|(family, _, own)| (family.clone(), own.len()))
        .collect();
    create.sort();
    compare("create", json!(create), json!(row.create));
    let updated = plan.update.iter();
    let mut update: Vec<_> = updated
        .map(|(slice, _, own)| (slice.address_type.clone(), own.len()))
        .collect();
    update.sort();
    compare("update", json!(update), json!(row.update));
    let mut delete: Vec<&str> = plan.delete.iter().map(|own| own.name()).collect();
    delete.sort_unstable();
    compare("delete", json!(delete), json!(row.delete));
    if !create.is_empty() || !update.is_empty() {
        compare("labels", json!([labels(&service)]), json!(row.labels));
    }
    let after = after(&plan, &existing);
    let ports = after.iter().map(|(ports, _)| json!(ports)).collect();
    let ports = json!(sorted(ports).iter().map(clean).collect::<Vec<_>>());
    compare(
        "ports",
        ports,
        json!(sorted(row.ports.clone()).iter().map(clean).collect::<Vec<_>>()),
    );
    let endpoints: Vec<&Endpoint> = after.iter().flat_map(|(_, own)| own).collect();
    if let Some(expected) = &row.endpoints {
        let seen = sorted(endpoints.iter().map(|own| clean(&json!(own))).collect());
        compare(
            "endpoints",
            json!(seen),
            json!(sorted(expected.iter().map(clean).collect())),
        );
    }
    if let Some(served) = &row.served {
        let mut expected: Vec<String> = served
            .iter()
            .flat_map(numbers)
            .map(|number| format!("pod{number}"))
            .collect();
        expected.sort();
        let names = endpoints.iter().map(|own| own.target_ref.clone().unwrap().name);
        let mut seen: Vec<String> = names.collect();
        seen.sort();
        compare("served", json!(seen), json!(expected));
    }
    all
}

#[test]
fn endpoint_slices_change_as_upstream() {
    let mut all = Vec::new();
    for row in tables().reconcile {
        let found = differences(&row);
        match &row.differs {
            Some(reason) if found.is_empty() => all.push(format!("{} does not differ: {reason}", row.name)),
            Some(_) => {}
            None => all.extend(found),
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn endpoints_are_those_of_upstream() {
    for row in tables().endpoints {
        let service = service_of(&row.service);
        let pod = pod_of(&row.pod, &service);
        let zone = |_: &str| Some(NodeZone(row.zone.clone()));
        let groups = desired(&service, &[pod], zone, usize::MAX).groups;
        let endpoints: Vec<Value> = groups.values().flatten().map(|own| clean(&json!(own))).collect();
        assert_eq!(endpoints, [clean(&row.endpoint)], "{}", row.name);
    }
}

#[test]
fn endpoint_slices_have_the_families_of_upstream() {
    for row in tables().families {
        let plan = plan(
            desired(&service_of(&row.service), &[], |_| None, 0),
            &service_of(&row.service),
            &[],
        );
        let mut families: Vec<String> = plan.create.into_iter().map(|(family, ..)| family).collect();
        families.sort();
        assert_eq!(
            families == row.families,
            row.differs.is_none(),
            "{}: {families:?}",
            row.name
        );
    }
}
