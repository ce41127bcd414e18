//! Discovery of groups, versions and resources: `/api`, `/apis` and the paths between them and the resources.
//!
//! Answers are made from the registry's rows on request, so they cannot disagree with what is served, and from what is known of API
//! extensions ([`merged`]).

mod aggregated;
mod legacy;
mod merged;

use crate::body::Body;
use crate::error::ApiError;
use crate::handlers::{Inner, small_form};
use crate::indented::indented;
use crate::negotiation::{Format, ResponseFormat};
use crate::request_info::Query;
use crate::{protobuf, yaml};
use apiserver_registry::{RegistryError, ResourceRow, Verb, Verbs};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{Method, Request, Response};
use merged::ShownGroup;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use std::fmt::Write;

/// Paths there are besides those of groups.
const OWN_PATHS: [&str; 14] = [
    "/.well-known/openid-configuration",
    "/apis",
    "/apis/",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/metrics/slis",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/statusz",
    "/version",
];

/// Answers a discovery path; `None` for paths that are none.
pub(crate) fn answer(
    inner: &Inner,
    path: &str,
    request: &Request<Body>,
) -> Result<Option<Response<Body>>, ApiError> {
    let rows = inner.registry.served();
    let extensions = inner.hooks.extensions();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let is_read_only = match parts.as_slice() {
        ["version" | "api"] | ["api", _] => true,
        ["apis", group, _] => rows.is_built_in_group(group),
        // The others answer whatever the method.
        _ => false,
    };
    if is_read_only && *request.method() != Method::GET {
        return Err(ApiError::MethodNotAllowed);
    }
    if let (["api" | "apis"], Some(version)) = (parts.as_slice(), aggregated::wanted(request)) {
        return Ok(Some(aggregated_answer(
            &aggregated::groups(&merged::groups(&rows, &extensions), parts[0], version),
            version,
            request,
        )));
    }
    let found = match parts.as_slice() {
        [""] => Some(index(&merged::groups(&rows, &extensions))),
        ["version"] => Some(serde_json::to_value(&inner.version).unwrap_or_default()),
        ["api"] => Some(legacy::versions(request)),
        ["apis"] => Some(legacy::groups(&merged::groups(&rows, &extensions))),
        ["api", version] => Some(legacy::resources(&rows, "", version).ok_or(RegistryError::NoSuchResource)?),
        ["apis", group] if !group.is_empty() => legacy::group(&merged::groups(&rows, &extensions), group),
        // Of a group of its own upstream says that a version is missing.
        ["apis", group, version] => match legacy::resources(&rows, group, version) {
            None if rows.is_built_in_group(group) => return Err(RegistryError::NoSuchResource.into()),
            found => found,
        },
        _ => None,
    };
    let Some(found) = found else { return Ok(None) };
    let mut form = small_form(request)?;
    // Clients read `/version` with their eyes.
    form.pretty |= parts == ["version"] && Query::of(request.uri()).get("pretty").is_none();
    Ok(Some(formed(form, &found)))
}

/// The verbs of a resource, built-in ones by name; for custom ones upstream has an order of its own.
fn verbs(row: &ResourceRow, verbs: Verbs) -> Value {
    let mut names: Vec<&str> = verbs.iter().map(Verb::as_str).collect();
    if row.custom {
        // What makes and changes objects one by one comes after what reads and removes them.
        names.sort_by_key(|name| matches!(*name, "create" | "update" | "watch"));
    }
    names.into()
}

/// Paths that the server serves, listed at `/`.
fn index(groups: &[ShownGroup<'_>]) -> Value {
    let mut paths: Vec<String> = OWN_PATHS.iter().map(|path| (*path).to_owned()).collect();
    for group in groups {
        let root = match group.name {
            "" => "/api".to_owned(),
            name => format!("/apis/{name}"),
        };
        paths.extend(
            group
                .versions
                .iter()
                .map(|version| format!("{root}/{}", version.name())),
        );
        paths.push(root);
    }
    paths.sort();
    json!({ "paths": paths })
}

/// A document in the form requested; what is no kind of the API, such as the version, is JSON.
fn formed(form: ResponseFormat, value: &Value) -> Response<Body> {
    let (text, kind) = (value.to_string(), value.get("kind").and_then(Value::as_str));
    let (format, body) = match (form.format, kind) {
        (Format::Yaml, Some(_)) => (Format::Yaml, Some(yaml::from_json(text.as_bytes()))),
        (Format::Protobuf, Some(kind)) => (Format::Protobuf, protobuf::from_json(kind, text.as_bytes())),
        _ => (Format::Json, None),
    };
    let (format, body) = match body {
        Some(body) => (format, body),
        None => {
            let mut json = if form.pretty {
                indented(&text)
            } else {
                text.into_bytes()
            };
            json.push(b'\n');
            (Format::Json, json)
        }
    };
    Response::builder()
        .header(CONTENT_TYPE, format.media_type())
        .header(CACHE_CONTROL, "no-cache, private")
        .body(Body::from(body))
        .expect("headers are well formed")
}

fn aggregated_answer(document: &Value, version: &str, request: &Request<Body>) -> Response<Body> {
    let mut text = document.to_string();
    text.push('\n');
    let mut etag = String::from("\"");
    for byte in Sha512::digest(&text) {
        let _ = write!(etag, "{byte:02X}");
    }
    etag.push('"');
    let known = request.headers().get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(etag.as_str());
    let builder = Response::builder()
        .header(ETAG, etag)
        .header(VARY, ACCEPT.as_str())
        .header(CACHE_CONTROL, "public")
        .header(
            CONTENT_TYPE,
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"),
        );
    let answer = if known {
        builder.status(304).body(Body::empty())
    } else {
        builder.body(Body::from(Bytes::from(text)))
    };
    answer.expect("headers are well formed")
}
