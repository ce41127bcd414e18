//! The requests that every user sends.

use serde_json::{Value, json};

use super::fixture::{Placed, Sample};
use super::run::Ask;
use super::{OTHER, OWN};

/// Nothing changes, whichever user sends it.
const DRY: &str = "dryRun=All";
const APPLY: &str = "dryRun=All&fieldManager=tenant&force=true";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY_TYPE: &str = "application/apply-patch+yaml";
/// A watch that says when its initial events are over.
const WATCH: &str = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=20";
/// The side on which nothing stands, for creates.
const FREE: &str = "green";

/// All requests for one kind.
#[must_use]
pub fn of(sample: &Sample) -> Vec<Ask> {
    let own = sample.on(OWN, 1);
    let other = sample.on(OTHER, 2);
    let mut asks = Vec::new();
    plain(&mut asks, sample, &own);
    plain(&mut asks, sample, &other);
    creates(&mut asks, sample);
    for sub in &sample.resource.subresources {
        for placed in [&own, &other] {
            subresource(&mut asks, placed, &sub.name);
        }
    }
    match sample.resource.namespaced {
        true => across_namespaces(&mut asks, &own),
        false => nested(&mut asks, sample, &own, &other),
    }
    asks
}

/// Every verb at the plain addresses of one side.
fn plain(asks: &mut Vec<Ask>, sample: &Sample, placed: &Placed) {
    let Placed {
        collection,
        name,
        object,
    } = placed;
    let item = format!("{collection}/{name}");
    asks.extend([
        Ask::plain("GET", collection),
        Ask::plain("GET", &item),
        Ask::with_body("PUT", &format!("{item}?{DRY}"), JSON, object),
        Ask::with_body("PATCH", &format!("{item}?{DRY}"), MERGE, &label()),
        Ask::with_body("PATCH", &format!("{item}?{APPLY}"), APPLY_TYPE, &identity(object)),
        Ask::plain("DELETE", &format!("{item}?{DRY}")),
        Ask::plain("GET", &format!("{collection}?{WATCH}")),
        Ask::plain(
            "GET",
            &format!("{collection}?{WATCH}&fieldSelector=metadata.name%3D{name}"),
        ),
    ]);
    if sample.resource.has_verb("deletecollection") {
        asks.push(Ask::plain(
            "DELETE",
            &format!("{collection}?{DRY}&labelSelector=tenants"),
        ));
    }
}

/// New objects on either side.
fn creates(asks: &mut Vec<Ask>, sample: &Sample) {
    let free = sample.on(FREE, 3).object;
    for side in [OWN, OTHER] {
        let mut object = free.clone();
        if sample.resource.namespaced {
            object["metadata"]["name"] = "fresh".into();
        }
        let collection = sample.resource.collection(side);
        asks.push(Ask::with_body(
            "POST",
            &format!("{collection}?{DRY}"),
            JSON,
            &object,
        ));
    }
}

/// Addresses and bodies that disagree about the namespace.
fn across_namespaces(asks: &mut Vec<Ask>, own: &Placed) {
    let all = own.collection.replace(&format!("/namespaces/{OWN}"), "");
    let Placed { collection, name, .. } = own;
    let item = format!("{collection}/{name}");
    for selector in [
        format!("metadata.name%3D{name},metadata.namespace%3D{OTHER}"),
        format!("metadata.namespace%3D{OTHER}"),
    ] {
        asks.push(Ask::plain(
            "GET",
            &format!("{collection}?fieldSelector={selector}"),
        ));
        asks.push(Ask::plain(
            "GET",
            &format!("{collection}?{WATCH}&fieldSelector={selector}"),
        ));
        asks.push(Ask::plain(
            "DELETE",
            &format!("{collection}?{DRY}&fieldSelector={selector}"),
        ));
    }
    let mut elsewhere = own.object.clone();
    elsewhere["metadata"]["namespace"] = OTHER.into();
    let mut fresh = elsewhere.clone();
    fresh["metadata"]["name"] = "fresh".into();
    let moved = json!({"metadata": {"namespace": OTHER}});
    let mut applied = identity(&own.object);
    applied["metadata"]["namespace"] = OTHER.into();
    asks.extend([
        Ask::plain("GET", &all),
        Ask::plain("GET", &format!("{all}?{WATCH}")),
        Ask::plain("GET", &format!("{all}?fieldSelector=metadata.namespace%3D{OWN}")),
        Ask::plain("GET", &format!("{all}/{name}")),
        Ask::plain("DELETE", &format!("{all}?{DRY}")),
        Ask::with_body("POST", &format!("{all}?{DRY}"), JSON, &fresh),
        Ask::with_body("POST", &format!("{collection}?{DRY}"), JSON, &fresh).called("other-namespace"),
        Ask::with_body("PUT", &format!("{item}?{DRY}"), JSON, &elsewhere).called("other-namespace"),
        Ask::with_body("PATCH", &format!("{item}?{DRY}"), MERGE, &moved).called("other-namespace"),
        Ask::with_body("PATCH", &format!("{item}?{APPLY}"), APPLY_TYPE, &applied).called("other-namespace"),
        Ask::plain(
            "GET",
            &collection.replace("/namespaces/", "/namespaces/red/namespaces/"),
        ),
    ]);
}

/// Cluster-wide kinds addressed below a namespace.
fn nested(asks: &mut Vec<Ask>, sample: &Sample, own: &Placed, other: &Placed) {
    let root = own
        .collection
        .trim_end_matches(&sample.resource.resource)
        .to_owned();
    let below = format!("{root}namespaces/{OWN}/{}", sample.resource.resource);
    for name in [&own.name, &other.name] {
        let item = format!("{below}/{name}");
        asks.extend([
            Ask::plain("GET", &item),
            Ask::plain("DELETE", &format!("{item}?{DRY}")),
            Ask::with_body("PATCH", &format!("{item}?{DRY}"), MERGE, &label()),
            Ask::with_body("PUT", &format!("{item}?{DRY}"), JSON, &other.object),
            Ask::plain("GET", &format!("{item}/status")),
            Ask::with_body("PUT", &format!("{item}/finalize?{DRY}"), JSON, &other.object),
        ]);
    }
    asks.extend([
        Ask::plain("GET", &below),
        Ask::plain("GET", &format!("{below}?{WATCH}")),
        Ask::plain("DELETE", &format!("{below}?{DRY}")),
        Ask::with_body(
            "POST",
            &format!("{below}?{DRY}"),
            JSON,
            &sample.on(FREE, 3).object,
        ),
    ]);
}

/// A subresource by every method that one might try.
fn subresource(asks: &mut Vec<Ask>, placed: &Placed, name: &str) {
    let address = format!("{}/{}/{name}", placed.collection, placed.name);
    let dry = format!("{address}?{DRY}");
    match name {
        "exec" | "attach" => {
            let address = format!("{address}?command=true&stdout=true");
            let mut upgrade = Ask::plain("GET", &address).called("websocket");
            upgrade.upgrade = true;
            asks.extend([upgrade, Ask::plain("POST", &address)]);
        }
        "portforward" => {
            let mut upgrade = Ask::plain("GET", &address).called("websocket");
            upgrade.upgrade = true;
            asks.extend([upgrade, Ask::plain("POST", &address)]);
        }
        "proxy" => {
            asks.extend(["GET", "POST", "PUT", "PATCH", "DELETE"].map(|verb| Ask::plain(verb, &address)))
        }
        "log" => asks.push(Ask::plain("GET", &address)),
        "binding" | "eviction" | "token" => pseudo_creates(asks, placed, name, &dry),
        _ => {
            asks.push(Ask::plain("GET", &address));
            asks.push(Ask::with_body("PATCH", &dry, MERGE, &label()));
            if name == "scale" {
                scales(asks, placed, &dry);
            } else {
                asks.push(Ask::with_body("PUT", &dry, JSON, &placed.object));
            }
        }
    }
}

/// Bodies that agree with the address, and bodies that name another.
fn pseudo_creates(asks: &mut Vec<Ask>, placed: &Placed, name: &str, address: &str) {
    let body = |namespace: Option<&str>, object: &str| {
        let mut meta = json!({"name": object});
        if let Some(namespace) = namespace {
            meta["namespace"] = namespace.into();
        }
        match name {
            "binding" => json!({"apiVersion": "v1", "kind": "Binding", "metadata": meta,
                                "target": {"kind": "Node", "name": "one-blue"}}),
            "eviction" => json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}),
            _ => json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": meta,
                        "spec": {"audiences": ["https://kubernetes.default.svc.cluster.local"]}}),
        }
    };
    let post = |body: &Value| Ask::with_body("POST", address, JSON, body);
    asks.extend([
        post(&body(None, &placed.name)),
        post(&body(Some(OTHER), &placed.name)).called("names-red"),
        post(&body(Some(OWN), &placed.name)).called("names-blue"),
        post(&body(None, "somebody-else")).called("other-name"),
    ]);
}

fn scales(asks: &mut Vec<Ask>, placed: &Placed, address: &str) {
    let body = |namespace: &str, name: &str| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
               "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": 3}})
    };
    let put = |body: &Value| Ask::with_body("PUT", address, JSON, body);
    asks.extend([
        put(&body(OWN, &placed.name)).called("names-blue"),
        put(&body(OTHER, &placed.name)).called("names-red"),
        put(&body(OWN, "somebody-else")).called("other-name"),
    ]);
}

fn label() -> Value {
    json!({"metadata": {"labels": {"t": "x"}}})
}

/// The least that an apply may carry.
fn identity(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
           "metadata": {"name": object["metadata"]["name"], "labels": {"t": "x"}}})
}
