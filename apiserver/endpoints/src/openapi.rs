//! OpenAPI: v3 with an index and one document per group version, v2 with one for all; rendered when asked for and
//! kept by nobody (v2 shared by those who ask at the same time).
//!
//! A v3 document's address carries a hash of what it is made from, so that clients keep their copy until that changes.

use crate::body::Body;
use crate::framing::SliceFrames;
use crate::handlers::{Inner, small_form};
use crate::negotiation::{self, Form, Format};
use crate::request_info::Query;
use crate::respond;
use apiserver_registry::registry::Version;
use apiserver_registry::{RegistryError, ResourceRow, SubresourceRole};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderValue, Request, Response, StatusCode};
use machinery_api::openapi::v2::{self, GroupVersionKinds};
use machinery_api::openapi::{CustomKind, render};
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::collections::VecDeque;
use std::fmt::Write;

/// Answers `/openapi/v2`, `/openapi/v3` and what is below it.
pub(crate) fn answer(
    inner: &Inner,
    path: &str,
    request: &Request<Body>,
) -> Result<Option<Response<Body>>, RegistryError> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["openapi", "v2"] => Ok(Some(whole(inner, request))),
        ["openapi", "v3"] => Ok(Some(index(inner))),
        ["openapi", "v3", "api", version] => document(inner, "", version, request),
        ["openapi", "v3", "apis", group, version] => document(inner, group, version, request),
        _ => Ok(None),
    }
}

fn address(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn index(inner: &Inner) -> Response<Body> {
    let rows = inner.registry.rows();
    let mut paths = Map::new();
    for group in &rows.groups {
        for version in &group.versions {
            let address = address(&group.name, &version.name);
            let hash = hash(inner, version);
            paths.insert(
                address.clone(),
                json!({ "serverRelativeURL": format!("/openapi/v3/{address}?hash={hash}") }),
            );
        }
    }
    Response::builder()
        .header(CONTENT_TYPE, "application/json")
        .header(CACHE_CONTROL, "no-cache, private")
        .body(Body::from(json!({ "paths": paths }).to_string() + "\n"))
        .expect("headers are well formed")
}

/// Changes with the program, the table and the custom kinds of the group version.
fn hash(inner: &Inner, version: &Version) -> String {
    let mut digest = Sha512::new();
    digest.update(&inner.version.git_version);
    digest_version(&mut digest, version);
    hexadecimal(digest)
}

fn digest_version(digest: &mut Sha512, version: &Version) {
    for row in &version.resources {
        digest.update(row.gvk.to_string());
        digest.update(row.schema.fingerprint().to_le_bytes());
        digest.update(row.openapi_schema.as_deref().unwrap_or_default());
    }
}

fn hexadecimal(digest: Sha512) -> String {
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn document(
    inner: &Inner,
    group: &str,
    version_name: &str,
    request: &Request<Body>,
) -> Result<Option<Response<Body>>, RegistryError> {
    let rows = inner.registry.rows();
    let found = rows
        .group(group)
        .and_then(|group| group.versions.iter().find(|own| own.name == version_name));
    let Some(version) = found else {
        // Upstream's has no page for it.
        let answer = Response::builder()
            .status(StatusCode::NOT_FOUND)
            .body(Body::empty());
        return Ok(Some(answer.expect("a code is well formed")));
    };
    let hash = hash(inner, version);
    let asked = Query::of(request.uri());
    let builder = Response::builder()
        .header(ETAG, format!("\"{hash}\""))
        .header(VARY, "Accept")
        .header(
            CACHE_CONTROL,
            if asked.get("hash").is_some() {
                "public, immutable"
            } else {
                "no-cache, private"
            },
        );
    if asked.get("hash").is_some_and(|own| own != hash) {
        let location = format!("/openapi/v3/{}?hash={hash}", address(group, version_name));
        let answer = builder
            .status(StatusCode::MOVED_PERMANENTLY)
            .header(LOCATION, location)
            .body(Body::empty());
        return Ok(Some(answer.expect("headers are well formed")));
    }
    let known = request.headers().get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if known.is_some_and(|known| known.trim_matches('"') == hash) {
        let answer = builder.status(StatusCode::NOT_MODIFIED).body(Body::empty());
        return Ok(Some(answer.expect("headers are well formed")));
    }
    let form = small_form(request)?;
    let bytes = Bytes::from(rendered(inner, group, version));
    let mut answer = respond::framed(
        StatusCode::OK,
        form,
        Format::Json.media_type(),
        SliceFrames(VecDeque::from([bytes])),
    );
    if let Some(headers) = builder.body(()).ok().map(|response| response.headers().clone()) {
        answer.headers_mut().extend(headers);
    }
    answer
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    Ok(Some(answer))
}

/// What a v2 document is called in protobuf; the second is the older spelling.
const V2_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// The v2 document.
fn whole(inner: &Inner, request: &Request<Body>) -> Response<Body> {
    let offers = [
        (Format::Json.media_type(), v2::Form::Json),
        (V2_PROTOBUF[0], v2::Form::Protobuf),
        (V2_PROTOBUF[1], v2::Form::Protobuf),
    ];
    let Some(document_form) = negotiation::choose(request.headers(), &offers) else {
        let answer = Response::builder().status(StatusCode::NOT_ACCEPTABLE);
        return answer.body(Body::empty()).expect("headers are well formed");
    };
    let rows = inner.registry.rows();
    let mut digest = Sha512::new();
    digest.update(&inner.version.git_version);
    for version in rows.groups.iter().flat_map(|group| &group.versions) {
        digest_version(&mut digest, version);
    }
    let tag = format!("\"{}\"", hexadecimal(digest));
    let known = request.headers().get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let mut answer = if known == Some(tag.as_str()) {
        let answer = Response::builder().status(StatusCode::NOT_MODIFIED);
        answer.body(Body::empty()).expect("headers are well formed")
    } else {
        let render = || {
            let groups = rows.groups.iter();
            let parts: Vec<GroupVersionKinds<'_>> = groups
                .flat_map(|group| group.versions.iter().map(|version| kinds(&group.name, version)))
                .collect();
            v2::render(&parts, &inner.version.git_version, document_form)
        };
        let bytes = inner.documents.get(&format!("{document_form:?} {tag}"), render);
        let content_type = match document_form {
            v2::Form::Json => Format::Json.media_type(),
            v2::Form::Protobuf => V2_PROTOBUF[0],
        };
        let form = Form {
            gzip: negotiation::takes_gzip(request.headers()),
            ..Form::default()
        };
        respond::framed(
            StatusCode::OK,
            form,
            content_type,
            SliceFrames(VecDeque::from([bytes])),
        )
    };
    let headers = answer.headers_mut();
    headers.insert(ETAG, tag.parse().expect("hexadecimal digits"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

/// What a group version serves, as the renderer wants it.
fn kinds<'a>(group: &'a str, version: &'a Version) -> GroupVersionKinds<'a> {
    GroupVersionKinds {
        group,
        version: &version.name,
        kinds: machinery_api::table().kinds_of(group, &version.name).collect(),
        custom: version
            .resources
            .iter()
            .filter(|row| row.custom)
            .map(|row| custom(row))
            .collect(),
    }
}

fn rendered(inner: &Inner, group: &str, version: &Version) -> Vec<u8> {
    let parts = kinds(group, version);
    render(
        group,
        &version.name,
        &parts.kinds,
        &parts.custom,
        &inner.version.git_version,
    )
}

fn custom(row: &ResourceRow) -> CustomKind<'_> {
    CustomKind {
        group: &row.gvk.group,
        version: &row.gvk.version,
        kind: &row.gvk.kind,
        list_kind: &row.list_kind,
        plural: &row.plural,
        namespaced: row.namespaced,
        schema: row.openapi_schema.as_deref(),
        status: row.has_status(),
        scale: row
            .subresources
            .iter()
            .any(|sub| matches!(sub.role, SubresourceRole::Scale(_))),
    }
}
