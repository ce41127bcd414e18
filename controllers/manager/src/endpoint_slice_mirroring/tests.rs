//! Upstream's table as data (`reconciler_test.go`), and what bounds the work.

use super::plan::{Plan, labels, plan};
use super::repack::repack;
use k8s_openapi::api::core::v1::{EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Row {
    name: String,
    subsets: Value,
    existing: Vec<Value>,
    #[serde(default)]
    labels: Value,
    uid: Option<String>,
    #[serde(default)]
    deleting: bool,
    max: Option<usize>,
    slices: usize,
    actions: usize,
    #[serde(default)]
    invalid: usize,
    #[serde(default)]
    beyond: usize,
}

impl Row {
    fn endpoints(&self) -> Endpoints {
        let mut meta =
            json!({"name": "test-ep", "namespace": "test", "labels": self.labels, "uid": self.uid});
        if self.deleting {
            meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(json!({"metadata": meta, "subsets": self.subsets})).unwrap()
    }

    /// The slices there are, with the labels that make them mirrored ones.
    fn existing(&self, endpoints: &Endpoints) -> Vec<EndpointSlice> {
        let mut own = labels(endpoints);
        own.remove("foo");
        let labelled = self.existing.iter().map(|slice| {
            let mut slice: EndpointSlice = serde_json::from_value(slice.clone()).unwrap();
            slice.metadata.labels = Some(own.clone());
            slice
        });
        labelled.collect()
    }
}

fn check_row(row: &Row) -> Plan {
    let endpoints = row.endpoints();
    let existing = row.existing(&endpoints);
    let plan = plan(&endpoints, &existing, row.max.unwrap_or(1000));
    let (created, deleted) = (plan.create.len(), plan.delete.len());
    let name = &row.name;
    assert_eq!(existing.len() + created - deleted, row.slices, "{name}: {plan:?}");
    assert_eq!(
        created + deleted + plan.update.len(),
        row.actions,
        "{name}: {plan:?}"
    );
    assert_eq!((plan.invalid, plan.beyond), (row.invalid, row.beyond), "{name}");
    plan
}

#[test]
fn endpoint_slice_mirroring_plans_are_upstreams() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../testdata/endpoint_slice_mirroring/plan.json")).unwrap();
    for row in &rows {
        for content in &check_row(row).create {
            let family = |text: &String| if text.contains(':') { "IPv6" } else { "IPv4" };
            let addresses = content.endpoints.iter().flat_map(|own| &own.addresses);
            assert!(
                addresses.map(family).all(|own| own == content.family),
                "{}",
                row.name
            );
        }
    }
}

#[test]
fn endpoint_slice_mirroring_not_ready_trumps_ready() {
    let subsets = json!([
        {"ports": [{"port": 80}], "addresses": [{"ip": "10.0.0.1"}]},
        {"ports": [{"port": 80}], "notReadyAddresses": [{"ip": "10.0.0.1"}]}]);
    let subsets: Vec<EndpointSubset> = serde_json::from_value(subsets).unwrap();
    let (packed, _) = repack(&subsets);
    let ready: Vec<_> = packed
        .iter()
        .flat_map(|own| &own.addresses)
        .map(|own| own.1)
        .collect();
    assert_eq!(ready, [false]);
}

#[test]
fn endpoint_slice_mirroring_reads_addresses_with_leading_zeros() {
    let endpoints = json!({"metadata": {"name": "a"}, "subsets": [{"ports": [{"port": 80}],
        "addresses": [{"ip": "010.000.0.01"}, {"ip": "::ffff:10.0.0.2"}]}]});
    let plan = plan(&serde_json::from_value(endpoints).unwrap(), &[], 1000);
    let addresses: Vec<_> = plan.create[0]
        .endpoints
        .iter()
        .flat_map(|own| &own.addresses)
        .collect();
    assert_eq!(addresses, ["10.0.0.1", "10.0.0.2"]);
}

/// Ten thousand ports of ten thousand addresses are not paired, and subsets that are all different end somewhere.
#[test]
fn endpoint_slice_mirroring_work_is_bounded() {
    let ports: Vec<_> = (1..=10_000).map(|port| json!({"port": port})).collect();
    let addresses: Vec<_> = (0..10_000)
        .map(|own| json!({"ip": format!("10.0.{}.{}", own / 250, own % 250)}))
        .collect();
    let one = json!({"ports": ports, "addresses": addresses});
    let subsets: Vec<EndpointSubset> = serde_json::from_value(json!([one])).unwrap();
    let (packed, truncated) = repack(&subsets);
    assert_eq!(
        (packed.len(), packed[0].ports.len(), truncated),
        (1, 10_000, false)
    );
    let mut many = vec![json!({"ports": ports, "addresses": addresses})];
    many.extend(
        (1..=5_000).map(|port| json!({"ports": [{"port": port}], "addresses": [{"ip": "10.9.0.1"}]})),
    );
    let subsets: Vec<EndpointSubset> = serde_json::from_value(json!(many)).unwrap();
    assert!(repack(&subsets).1);
}
