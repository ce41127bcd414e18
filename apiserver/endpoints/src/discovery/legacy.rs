//! The plain forms: `APIVersions`, `APIGroupList`, `APIGroup`, `APIResourceList`.

use super::merged::ShownGroup;
use super::verbs;
use crate::body::Body;
use apiserver_registry::registry::Rows;
use apiserver_registry::{ResourceRow, Subresource};
use http::Request;
use serde_json::{Map, Value, json};

/// `/api`.
pub(super) fn versions(request: &Request<Body>) -> Value {
    let host = request
        .headers()
        .get(http::header::HOST)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let host = request
        .uri()
        .authority()
        .map_or(host, |authority| authority.as_str());
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": host }],
    })
}

/// `/apis`.
pub(super) fn groups(groups: &[ShownGroup<'_>]) -> Value {
    let groups: Vec<Value> = groups
        .iter()
        .filter(|group| !group.name.is_empty())
        .map(|group| group_body(group).into())
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/apps`.
pub(super) fn group(groups: &[ShownGroup<'_>], name: &str) -> Option<Value> {
    let mut document = Map::new();
    document.insert("kind".into(), "APIGroup".into());
    document.insert("apiVersion".into(), "v1".into());
    document.extend(group_body(groups.iter().find(|group| group.name == name)?));
    Some(document.into())
}

fn group_body(group: &ShownGroup<'_>) -> Map<String, Value> {
    let version =
        |version: &str| json!({ "groupVersion": format!("{}/{version}", group.name), "version": version });
    let versions: Vec<Value> = group.versions.iter().map(|own| version(own.name())).collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    let mut body = Map::new();
    body.insert("name".into(), group.name.into());
    body.insert("versions".into(), versions.into());
    body.insert("preferredVersion".into(), preferred);
    body
}

/// `/api/v1`, `/apis/apps/v1`.
pub(super) fn resources(rows: &Rows, group: &str, version: &str) -> Option<Value> {
    let version = rows
        .group(group)?
        .versions
        .iter()
        .find(|own| own.name == version)?;
    let mut listed: Vec<Value> = Vec::new();
    for row in &version.resources {
        listed.push(resource(row));
        listed.extend(row.subresources.iter().map(|sub| subresource(row, sub)));
    }
    let name = if group.is_empty() {
        version.name.clone()
    } else {
        format!("{group}/{}", version.name)
    };
    let mut document = Map::new();
    document.insert("kind".into(), "APIResourceList".into());
    if !group.is_empty() {
        document.insert("apiVersion".into(), "v1".into());
    }
    document.insert("groupVersion".into(), name.into());
    document.insert("resources".into(), listed.into());
    Some(document.into())
}

fn resource(row: &ResourceRow) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), row.plural.as_str().into());
    out.insert("singularName".into(), row.singular.as_str().into());
    out.insert("namespaced".into(), row.namespaced.into());
    out.insert("kind".into(), row.gvk.kind.as_str().into());
    out.insert("verbs".into(), verbs(row, row.verbs));
    for (name, list) in [("shortNames", &row.short_names), ("categories", &row.categories)] {
        if !list.is_empty() {
            out.insert(name.into(), list.clone().into());
        }
    }
    if !row.storage_version_hash.is_empty() {
        out.insert(
            "storageVersionHash".into(),
            row.storage_version_hash.as_str().into(),
        );
    }
    out.into()
}

fn subresource(row: &ResourceRow, sub: &Subresource) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), format!("{}/{}", row.plural, sub.name).into());
    out.insert("singularName".into(), "".into());
    out.insert("namespaced".into(), row.namespaced.into());
    if sub.gvk.group_version() != row.gvk.group_version() {
        out.insert("group".into(), sub.gvk.group.as_str().into());
        out.insert("version".into(), sub.gvk.version.as_str().into());
    }
    out.insert("kind".into(), sub.gvk.kind.as_str().into());
    out.insert("verbs".into(), verbs(row, sub.verbs));
    out.into()
}
