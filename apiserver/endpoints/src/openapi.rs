//! OpenAPI: v3 with an index and one document per group version, v2 with one for all; rendered when requested
//! ([`crate::shared_document`]).
//!
//! A v3 document's address carries a hash of what it is made from, so that clients keep their copy until that changes.

use crate::body::Body;
use crate::error::ApiError;
use crate::extensions::ExtensionGroups;
use crate::framing::SliceFrames;
use crate::handlers::{Inner, small_form};
use crate::negotiation::{self, Format, ResponseFormat};
use crate::request_info::Query;
use crate::respond;
use crate::shared_document::{Document, SharedDocuments};
use apiserver_registry::registry::Version;
use apiserver_registry::{OpenApiSchema, ResourceRow, Rows, SubresourceRole};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use machinery_api::openapi::v2::{self, GroupVersionKinds, OtherDocument};
use machinery_api::openapi::{BuiltInKind, CustomKind, render, render_root, root_addresses};
use machinery_runtime::Runtime;
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

/// An answer, or what is still to be rendered of it.
pub(crate) enum Answer {
    Ready(Response<Body>),
    Document(Wanted),
}

/// An answer whose document is to be rendered, where it is not there already.
pub(crate) struct Wanted {
    key: String,
    render: Box<dyn FnOnce() -> Document + Send>,
    content_type: &'static str,
    headers: HeaderMap,
}

impl Answer {
    /// # Errors
    /// An internal error of the registry where rendering failed.
    pub(crate) async fn response(
        self,
        runtime: &Runtime,
        documents: &SharedDocuments,
    ) -> Result<Response<Body>, ApiError> {
        let wanted = match self {
            Self::Ready(response) => return Ok(response),
            Self::Document(wanted) => wanted,
        };
        let document = documents.get(runtime, wanted.key, wanted.render).await?;
        let frames = SliceFrames(VecDeque::from([document.bytes()]));
        let mut answer = respond::framed(
            StatusCode::OK,
            ResponseFormat::default(),
            wanted.content_type,
            frames,
        );
        answer.headers_mut().extend(wanted.headers);
        if document.gzip {
            let gzip = HeaderValue::from_static("gzip");
            answer.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        Ok(answer)
    }
}

/// Answers `/openapi/v2`, `/openapi/v3` and what is below it.
pub(crate) fn answer(inner: &Inner, path: &str, request: &Request<Body>) -> Result<Option<Answer>, ApiError> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["openapi", "v2"] => Ok(Some(whole(inner, request))),
        ["openapi", "v3"] => Ok(Some(Answer::Ready(index(inner)))),
        ["openapi", "v3", "api", version] => of_version(inner, "", version, request).map(Some),
        ["openapi", "v3", "apis", group, version] => of_version(inner, group, version, request).map(Some),
        ["openapi", "v3", address @ ..] => of_root(inner, &address.join("/"), request),
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
    let rows = inner.registry.served();
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
    for address in roots(&rows) {
        let hash = root_hash(inner, &address);
        let url = format!("/openapi/v3/{address}?hash={hash}");
        paths.insert(address, json!({ "serverRelativeURL": url }));
    }
    for other in &inner.hooks.extensions().versions {
        if let Some(own) = &other.openapi_v3 {
            paths.insert(
                address(&other.group, &other.version),
                json!({ "serverRelativeURL": **own }),
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
        if let Some(schema) = &row.openapi_schema {
            digest.update(schema.digest());
        }
    }
}

fn hexadecimal(digest: Sha512) -> String {
    digest.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// Addresses of documents without a version: upstream has them for its own groups.
fn roots(rows: &Rows) -> impl Iterator<Item = String> {
    let groups = rows.groups.iter().map(|group| &group.name);
    let own = groups.filter(|name| !name.is_empty() && rows.is_built_in_group(name));
    let roots = root_addresses().iter().map(|own| (*own).to_owned());
    roots.chain(own.map(|name| format!("apis/{name}")))
}

/// `1.37`, as documents name the server.
fn release(inner: &Inner) -> String {
    format!("{}.{}", inner.version.major, inner.version.minor)
}

fn root_hash(inner: &Inner, address: &str) -> String {
    let mut digest = Sha512::new();
    digest.update(&inner.version.git_version);
    digest.update(address);
    hexadecimal(digest)
}

fn of_root(inner: &Inner, address: &str, request: &Request<Body>) -> Result<Option<Answer>, ApiError> {
    let rows = inner.registry.served();
    let Some(address) = roots(&rows).find(|own| own == address) else {
        return Ok(None);
    };
    let hash = root_hash(inner, &address);
    let program = release(inner);
    let own = address.clone();
    let render = move || render_root(&own, &program).unwrap_or_default();
    document(&address, &hash, Box::new(render), request).map(Some)
}

fn of_version(
    inner: &Inner,
    group: &str,
    version_name: &str,
    request: &Request<Body>,
) -> Result<Answer, ApiError> {
    let rows = inner.registry.served();
    let Some(version) = find(&rows, group, version_name) else {
        // Upstream's has no page for it.
        return Ok(empty(StatusCode::NOT_FOUND, HeaderMap::new()));
    };
    let hash = hash(inner, version);
    let address = address(group, version_name);
    let (group, name) = (group.to_owned(), version_name.to_owned());
    let (program, found) = (release(inner), Arc::clone(&rows));
    let render = move || {
        let version = find(&found, &group, &name);
        let text = version.map(|version| rendered(&program, &group, version));
        text.unwrap_or_default()
    };
    document(&address, &hash, Box::new(render), request)
}

/// Answers with the document of this address and hash.
fn document(
    address: &str,
    hash: &str,
    render: Box<dyn FnOnce() -> Vec<u8> + Send>,
    request: &Request<Body>,
) -> Result<Answer, ApiError> {
    let query = Query::of(request.uri());
    let asked = query.get("hash");
    let cached = match asked {
        Some(_) => "public, immutable",
        None => "no-cache, private",
    };
    let mut headers = HeaderMap::from_iter([
        (ETAG, quoted(hash)),
        (VARY, HeaderValue::from_static("Accept")),
        (CACHE_CONTROL, HeaderValue::from_static(cached)),
    ]);
    if asked.is_some_and(|own| own != hash) {
        let location = format!("/openapi/v3/{address}?hash={hash}");
        let location = location
            .parse()
            .expect("names of groups and versions are parts of addresses");
        headers.insert(LOCATION, location);
        return Ok(empty(StatusCode::MOVED_PERMANENTLY, headers));
    }
    let known = request.headers().get(IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    if known.is_some_and(|known| known.trim_matches('"') == hash) {
        return Ok(empty(StatusCode::NOT_MODIFIED, headers));
    }
    let gzip = small_form(request)?.gzip;
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    Ok(Answer::Document(Wanted {
        key: format!("{address} {hash} {gzip}"),
        render: Box::new(move || Document::new(render(), gzip)),
        content_type: Format::Json.media_type(),
        headers,
    }))
}

fn find<'a>(rows: &'a Rows, group: &str, version: &str) -> Option<&'a Version> {
    let versions = &rows.group(group)?.versions;
    versions.iter().find(|own| own.name == version)
}

fn empty(status: StatusCode, headers: HeaderMap) -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Answer::Ready(response)
}

fn quoted(hash: &str) -> HeaderValue {
    format!("\"{hash}\"").parse().expect("hexadecimal digits")
}

/// Media types of a v2 document in protobuf; the second is the older spelling.
const V2_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// The v2 document.
fn whole(inner: &Inner, request: &Request<Body>) -> Answer {
    let offers = [
        (Format::Json.media_type(), v2::Form::Json),
        (V2_PROTOBUF[0], v2::Form::Protobuf),
        (V2_PROTOBUF[1], v2::Form::Protobuf),
    ];
    let Some(form) = negotiation::choose(request.headers(), &offers) else {
        return empty(StatusCode::NOT_ACCEPTABLE, HeaderMap::new());
    };
    let rows = inner.registry.served();
    let mut digest = Sha512::new();
    digest.update(&inner.version.git_version);
    for version in rows.groups.iter().flat_map(|group| &group.versions) {
        digest_version(&mut digest, version);
    }
    let extensions = inner.hooks.extensions();
    for other in extensions
        .versions
        .iter()
        .filter_map(|own| own.openapi_v2.as_ref())
    {
        digest.update(&other.digest);
    }
    let tag = quoted(&hexadecimal(digest));
    let headers = HeaderMap::from_iter([
        (ETAG, tag.clone()),
        (VARY, HeaderValue::from_static("Accept-Encoding")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache, private")),
    ]);
    if request.headers().get(IF_NONE_MATCH) == Some(&tag) {
        return empty(StatusCode::NOT_MODIFIED, headers);
    }
    let gzip = negotiation::takes_gzip(request.headers());
    let program = release(inner);
    Answer::Document(Wanted {
        key: format!("{form:?} {tag:?} {gzip}"),
        render: Box::new(move || Document::new(rendered_whole(&program, &rows, &extensions, form), gzip)),
        content_type: match form {
            v2::Form::Json => Format::Json.media_type(),
            v2::Form::Protobuf => V2_PROTOBUF[0],
        },
        headers,
    })
}

fn rendered_whole(program: &str, rows: &Rows, extensions: &ExtensionGroups, form: v2::Form) -> Vec<u8> {
    // Another server's paths stand in place of this one's.
    let is_own = |group: &str, version: &str| {
        let mut others = extensions.versions.iter().filter(|own| own.openapi_v2.is_some());
        !others.any(|own| own.group == group && own.version == version)
    };
    let groups = rows.groups.iter();
    let versions = groups.flat_map(|group| group.versions.iter().map(|version| (&*group.name, version)));
    let parts: Vec<GroupVersionKinds<'_>> = versions
        .filter(|(group, version)| is_own(group, &version.name))
        .map(|(group, version)| kinds(group, version))
        .collect();
    let others = extensions
        .versions
        .iter()
        .filter_map(|own| own.openapi_v2.as_ref());
    let others: Vec<&OtherDocument> = others.map(|own| &*own.document).collect();
    v2::render(&parts, &others, program, form)
}

/// Kinds of a group version, as input of the renderer.
fn kinds<'a>(group: &'a str, version: &'a Version) -> GroupVersionKinds<'a> {
    GroupVersionKinds {
        group,
        version: &version.name,
        kinds: built_in(group, version),
        custom: version
            .resources
            .iter()
            .filter(|row| row.custom)
            .map(|row| custom(row))
            .collect(),
    }
}

/// Built-in kinds of a group version, with what deletions of them answer.
fn built_in<'a>(group: &'a str, version: &'a Version) -> Vec<BuiltInKind<'a>> {
    let kinds = machinery_api::table().kinds_of(group, &version.name);
    let own = kinds.map(|kind| BuiltInKind {
        kind,
        returns_deleted: version
            .resources
            .iter()
            .any(|row| row.gvk == kind.gvk && row.strategy.returns_deleted_object()),
    });
    own.collect()
}

fn rendered(program: &str, group: &str, version: &Version) -> Vec<u8> {
    let parts = kinds(group, version);
    render(group, &version.name, &parts.kinds, &parts.custom, program)
}

fn custom(row: &ResourceRow) -> CustomKind<'_> {
    CustomKind {
        group: &row.gvk.group,
        version: &row.gvk.version,
        kind: &row.gvk.kind,
        list_kind: &row.list_kind,
        plural: &row.plural,
        namespaced: row.namespaced,
        schema: row.openapi_schema.as_ref().map(OpenApiSchema::json),
        status: row.has_status(),
        scale: row
            .subresources
            .iter()
            .any(|sub| matches!(sub.role, SubresourceRole::Scale(_))),
    }
}
