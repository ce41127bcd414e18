//! Custom kinds among those that tenants meet: one in namespaces with status and scale, one of the whole cluster.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::fixture::{Placed, Sample, placed};
use super::run::{Ask, Sender};
use crate::facts::{Resource, Subresource};

/// The group of both.
const GROUP: &str = "tenants.example.com";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The kind in namespaces.
pub(super) const NAMESPACED: &str = "boats";
const CLUSTER_WIDE: &str = "harbours";
/// Number of questions whether a server serves them, and the pause in between.
const ATTEMPTS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(100);

fn names(plural: &str) -> (&'static str, &'static str) {
    match plural {
        NAMESPACED => ("Boat", "Namespaced"),
        _ => ("Harbour", "Cluster"),
    }
}

/// The definitions.
pub(super) fn definitions() -> Vec<Placed> {
    [NAMESPACED, CLUSTER_WIDE].map(definition).into()
}

fn definition(plural: &str) -> Placed {
    let (kind, scope) = names(plural);
    let spec = json!({"type": "object", "properties": {
        "sail": {"type": "string", "default": "square"}, "replicas": {"type": "integer"}}});
    let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {"status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        "additionalPrinterColumns": [{"name": "Sail", "type": "string", "jsonPath": ".spec.sail"}]});
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": [version]}});
    placed(DEFINITIONS, object)
}

/// One object of each.
pub(super) fn samples() -> Vec<Sample> {
    [NAMESPACED, CLUSTER_WIDE].map(sample).into()
}

fn sample(plural: &str) -> Sample {
    let (kind, scope) = names(plural);
    let namespaced = scope == "Namespaced";
    let verbs = "create delete deletecollection get list patch update watch";
    let resource = Resource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        resource: plural.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: verbs.split(' ').map(str::to_owned).collect(),
        subresources: ["status", "scale"]
            .map(|name| Subresource {
                name: name.to_owned(),
            })
            .into(),
    };
    let name = if namespaced { "a" } else { "one-{ns}" };
    let object: Value = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "spec": {"replicas": 1}});
    Sample { resource, object }
}

/// Waits until the server serves both, as it does a moment after they were defined.
pub(super) async fn served(sender: &Sender) -> Result<()> {
    for plural in [NAMESPACED, CLUSTER_WIDE] {
        let ask = Ask::plain("GET", &format!("/apis/{GROUP}/v1/{plural}"));
        let mut attempts = 0;
        while !sender.send(None, &ask).await?.status.is_success() {
            attempts += 1;
            if attempts == ATTEMPTS {
                bail!("{} is not served", ask.path);
            }
            sender.runtime.sleep(PAUSE).await;
        }
    }
    Ok(())
}
