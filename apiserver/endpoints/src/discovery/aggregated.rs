//! `APIGroupDiscoveryList`: everything in one document.

use super::merged::{Shown, ShownGroup};
use super::verbs;
use crate::body::Body;
use apiserver_registry::ResourceRow;
use http::Request;
use http::header::ACCEPT;
use machinery_meta::GroupVersionKind;
use serde_json::{Map, Value, json};

/// The version of the aggregated form the client requests first, if it requests one before plain JSON.
pub(super) fn wanted(request: &Request<Body>) -> Option<&'static str> {
    let accepted: Vec<&str> = request
        .headers()
        .get_all(ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .collect();
    for clause in accepted.iter().flat_map(|value| value.split(',')) {
        let has = |parameter: &str| clause.split(';').any(|part| part.trim() == parameter);
        if has("as=APIGroupDiscoveryList")
            && has("g=apidiscovery.k8s.io")
            && clause.trim().starts_with("application/json")
        {
            return if has("v=v2") {
                Some("v2")
            } else {
                has("v=v2beta1").then_some("v2beta1")
            };
        }
        if matches!(clause.trim(), "application/json" | "*/*") {
            return None;
        }
    }
    None
}

pub(super) fn groups(groups: &[ShownGroup<'_>], prefix: &str, version: &str) -> Value {
    let core = prefix == "api";
    let items: Vec<Value> = groups
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(|group| {
            let metadata = if core {
                json!({})
            } else {
                json!({ "name": group.name })
            };
            let versions: Vec<Value> = group.versions.iter().map(|own| one_version(*own)).collect();
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn one_version(version: Shown<'_>) -> Value {
    let version = match version {
        Shown::Own(own) => own,
        Shown::Other(other) => {
            let freshness = if other.is_current { "Current" } else { "Stale" };
            return version_of(&other.version, json!(*other.resources), freshness);
        }
    };
    let resources: Vec<Value> = version.resources.iter().map(|row| resource(row)).collect();
    version_of(&version.name, resources.into(), "Current")
}

/// An empty list is left out, as Go's.
fn version_of(name: &str, resources: Value, freshness: &str) -> Value {
    let mut shown = json!({ "version": name, "freshness": freshness });
    if resources.as_array().is_some_and(|list| !list.is_empty()) {
        shown["resources"] = resources;
    }
    shown
}

/// Kinds of the same group version are named without it.
fn response_kind(row: &ResourceRow, gvk: &GroupVersionKind) -> Value {
    let own = !row.custom && gvk.group_version() == row.gvk.group_version();
    let (group, version) = if own {
        ("", "")
    } else {
        (gvk.group.as_str(), gvk.version.as_str())
    };
    json!({ "group": group, "version": version, "kind": gvk.kind })
}

fn resource(row: &ResourceRow) -> Value {
    let mut out = Map::new();
    out.insert("resource".into(), row.plural.as_str().into());
    out.insert("responseKind".into(), response_kind(row, &row.gvk));
    out.insert(
        "scope".into(),
        if row.namespaced { "Namespaced" } else { "Cluster" }.into(),
    );
    out.insert("singularResource".into(), row.singular.as_str().into());
    out.insert("verbs".into(), verbs(row, row.verbs));
    for (name, list) in [("shortNames", &row.short_names), ("categories", &row.categories)] {
        if !list.is_empty() {
            out.insert(name.into(), list.clone().into());
        }
    }
    let subresources: Vec<Value> = row
        .subresources
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": response_kind(row, &sub.gvk),
                "verbs": verbs(row, sub.verbs),
            })
        })
        .collect();
    if !subresources.is_empty() {
        out.insert("subresources".into(), subresources.into());
    }
    out.into()
}
