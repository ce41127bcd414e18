//! Answers in the negotiated form.

use crate::body::{Body, FrameSource};
use crate::error::ApiError;
use crate::framing::{CopiedFrames, GZIP_FROM_BYTES, GzipFrames, ListFrames, ObjectFrame};
use crate::negotiation::{Format, Representation, ResponseFormat};
use crate::table::{self, IncludeObject};
use apiserver_registry::Entry;
use apiserver_registry::columns::Columns;
use apiserver_registry::{ListPage, RegistryError, ResourceRow, Store, Written};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use jiff::Timestamp;
use machinery_meta::SharedObject;
use machinery_schema::protobuf::{close_envelope, encode_message, write_bytes};
use machinery_schema::{Strictness, Tree, decode_json, encode_json, encode_protobuf};
use std::sync::Arc;

/// Options of a response, negotiated before the work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOptions {
    pub(crate) form: ResponseFormat,
    pub(crate) include: IncludeObject,
    pub(crate) now: Timestamp,
}

/// An answer whose bytes are framed on demand, compressed where that pays.
pub(crate) fn framed(
    status: StatusCode,
    form: ResponseFormat,
    content_type: &'static str,
    source: impl FrameSource + 'static,
) -> http::Response<Body> {
    let mut builder = http::Response::builder()
        .status(status)
        .header(CONTENT_TYPE, content_type);
    let long = source
        .remaining_bytes()
        .is_none_or(|bytes| bytes >= GZIP_FROM_BYTES);
    if form.gzip && long {
        builder = builder
            .header(CONTENT_ENCODING, "gzip")
            .header(VARY, "Accept-Encoding");
        return builder
            .body(Body::frames(GzipFrames::new(source)))
            .expect("headers are well formed");
    }
    builder
        .body(Body::frames(source))
        .expect("headers are well formed")
}

/// An answer that was made as a whole; it is handed out in pieces, so that it counts as held until it has been read.
fn bytes(
    status: StatusCode,
    form: ResponseFormat,
    content_type: &'static str,
    body: Vec<u8>,
) -> http::Response<Body> {
    framed(status, form, content_type, CopiedFrames::new([Bytes::from(body)]))
}

/// A JSON text in the format requested (never protobuf).
pub(crate) fn json_text(
    status: StatusCode,
    form: ResponseFormat,
    mut json: Vec<u8>,
) -> Result<http::Response<Body>, ApiError> {
    if form.format == Format::Yaml {
        return Ok(bytes(
            status,
            form,
            Format::Yaml.media_type(),
            crate::yaml::from_json(&json),
        ));
    }
    if form.format == Format::Protobuf {
        return metadata_protobuf(status, form, &json);
    }
    if form.pretty {
        json = pretty(&json);
    } else {
        json.push(b'\n');
    }
    Ok(bytes(status, form, Format::Json.media_type(), json))
}

fn pretty(json: &[u8]) -> Vec<u8> {
    let Ok(value) = serde_json::from_slice::<&serde_json::value::RawValue>(json) else {
        return json.to_vec();
    };
    crate::indented::indented(value.get())
}

/// Any object of ours (discovery, options, reviews) as a tree.
pub(crate) fn tree(
    status: StatusCode,
    form: ResponseFormat,
    object: &Tree,
) -> Result<http::Response<Body>, ApiError> {
    match form.format {
        Format::Json | Format::Yaml => {
            let mut json = Vec::new();
            encode_json(object, &mut json);
            json_text(status, form, json)
        }
        Format::Protobuf => Ok(bytes(
            status,
            form,
            Format::Protobuf.media_type(),
            encode_protobuf(object),
        )),
    }
}

/// Metadata-only forms in protobuf.
fn metadata_protobuf(
    status: StatusCode,
    form: ResponseFormat,
    json: &[u8],
) -> Result<http::Response<Body>, ApiError> {
    let body = encode_protobuf(&metadata_tree(json)?);
    Ok(bytes(status, form, Format::Protobuf.media_type(), body))
}

/// A metadata-only form as a tree (a Table has none).
pub(crate) fn metadata_tree(json: &[u8]) -> Result<Tree, ApiError> {
    let free = std::str::from_utf8(json)
        .ok()
        .and_then(|text| Tree::from_json(text).ok());
    let kind = free
        .as_ref()
        .map(|tree| tree.str_at(&["kind"]))
        .unwrap_or_default();
    let Some((schema, ty)) = machinery_api::schema_for("meta.k8s.io", "v1", kind).filter(|_| kind != "Table")
    else {
        return Err(ApiError::NotAcceptable(vec![
            Format::Json.media_type().into(),
            Format::Yaml.media_type().into(),
        ]));
    };
    let decoded = decode_json(schema, ty, json, Strictness::Ignore)
        .map_err(|error| RegistryError::Internal(error.to_string()))?;
    Ok(decoded.tree)
}

/// The answer to a write.
pub(crate) fn written(
    store: &Store,
    showing: ResponseOptions,
    status: StatusCode,
    written: &Written,
) -> Result<http::Response<Body>, ApiError> {
    match written {
        Written::Stored { entry, .. } => entry_answer(store, showing, status, entry),
        Written::Shown { object, .. } => tree_answer(&store.row.columns, showing, status, object),
    }
}

/// The stored object, where its slices are the answer.
pub(crate) fn shared(row: &ResourceRow, form: ResponseFormat, written: &Written) -> Option<SharedObject> {
    let Written::Stored { entry, .. } = written else {
        return None;
    };
    is_sent_as_stored(row, form, entry).then(|| SharedObject {
        header: Arc::clone(&entry.record.header),
        revision: entry.revision,
        json: ObjectFrame::whole(row).slices(&entry.record, entry.revision),
    })
}

/// Bytes of a written object that are copied into its answer: none where its slices are the answer.
pub(crate) fn copied_bytes(row: &ResourceRow, form: ResponseFormat, written: &Written) -> usize {
    match written {
        Written::Stored { entry, .. } if is_sent_as_stored(row, form, entry) => 0,
        Written::Stored { entry, .. } => entry.record.len(),
        Written::Shown { object, .. } => object.arena_bytes(),
    }
}

/// Bytes that the answer to a write refers to, or has, about.
pub(crate) fn written_bytes(written: &Written) -> usize {
    match written {
        Written::Stored { entry, .. } => entry.record.len(),
        Written::Shown { object, .. } => object.arena_bytes(),
    }
}

/// One stored object.
pub(crate) fn entry_answer(
    store: &Store,
    showing: ResponseOptions,
    status: StatusCode,
    entry: &Arc<Entry>,
) -> Result<http::Response<Body>, ApiError> {
    let row = &store.row;
    let form = showing.form;
    if is_sent_as_stored(row, form, entry) {
        let slices = ObjectFrame::whole(row).slices(&entry.record, entry.revision);
        let newline = Bytes::from_static(b"\n");
        let frames = CopiedFrames::new(slices.into_iter().chain([newline]));
        return Ok(framed(status, form, Format::Json.media_type(), frames));
    }
    tree_answer(&store.row.columns, showing, status, &store.decode(entry)?)
}

/// Reports whether an object's slices are the answer.
pub(crate) fn is_sent_as_stored(row: &ResourceRow, form: ResponseFormat, entry: &Entry) -> bool {
    has_slices(form) && is_current(row, entry)
}

/// Reports whether the form is the one that storage keeps slices in.
fn has_slices(form: ResponseFormat) -> bool {
    form.view == Representation::Object && form.format == Format::Json && !form.pretty
}

/// Its slices can be sent as they are: same version, same schema.
pub(crate) fn is_current(row: &ResourceRow, entry: &Entry) -> bool {
    row.stored.conversion.is_none() && entry.record.fingerprint == row.stored.fingerprint
}

/// One object as a tree, with these columns where a table is requested.
pub(crate) fn tree_answer(
    columns: &Columns,
    showing: ResponseOptions,
    status: StatusCode,
    object: &Tree,
) -> Result<http::Response<Body>, ApiError> {
    match showing.form.view {
        Representation::Object => tree(status, showing.form, object),
        Representation::Metadata { beta } => json_text(status, showing.form, metadata_of(object, beta)),
        Representation::MetadataList { .. } => {
            let kind = object.str_at(&["kind"]);
            let go = go_type(object.str_at(&["apiVersion"]), kind, "Unstructured");
            Err(ApiError::NotAcceptableView {
                view: "PartialObjectMetadataList",
                found: format!("not a list ({go})"),
            })
        }
        Representation::Table { beta } => {
            let revision = object.str_at(&["metadata", "resourceVersion"]);
            let meta = table::list_meta(revision, "", None);
            let mut out = table::table_head(columns, beta, &meta, true).into_bytes();
            out.extend(row_of(columns, showing, object, beta));
            out.extend_from_slice(b"]}");
            json_text(status, showing.form, out)
        }
    }
}

/// Upstream's internal Go type, which its message names.
fn go_type(api_version: &str, kind: &str, custom: &str) -> String {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let version = api_version.rsplit('/').next().unwrap_or_default();
    if machinery_api::schema_for(group, version, kind).is_none() {
        return format!("*unstructured.{custom}");
    }
    let package = match group.split('.').next() {
        Some("" | "events") | None => "core",
        Some(first) => first,
    };
    format!("*{package}.{kind}")
}

/// A row of a table for a stored object; its metadata go as they are stored.
fn entry_row(
    store: &Store,
    showing: ResponseOptions,
    entry: &Entry,
    beta: bool,
) -> Result<Vec<u8>, RegistryError> {
    let (row, object) = (&store.row, store.decode(entry)?);
    if showing.include != IncludeObject::Metadata || !is_current(row, entry) {
        return Ok(row_of(&row.columns, showing, &object, beta));
    }
    let shown = table::partial_metadata(&entry.record, entry.revision, beta);
    Ok(table::table_row(&row.columns, &object, showing.now, Some(&shown)))
}

/// A row of a table, with the object as asked.
pub(crate) fn row_of(columns: &Columns, showing: ResponseOptions, object: &Tree, beta: bool) -> Vec<u8> {
    let shown = match showing.include {
        IncludeObject::None => None,
        IncludeObject::Metadata => Some(metadata_of(object, beta)),
        IncludeObject::Object => {
            let mut json = Vec::new();
            encode_json(object, &mut json);
            Some(json)
        }
    };
    table::table_row(columns, object, showing.now, shown.as_deref())
}

/// `PartialObjectMetadata` of a tree.
pub(crate) fn metadata_of(object: &Tree, beta: bool) -> Vec<u8> {
    let api_version = if beta {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    };
    let metadata = object
        .get("metadata")
        .map_or_else(|| "{}".to_owned(), machinery_schema::Ref::to_json);
    format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata}}}")
        .into_bytes()
}

/// A page of a list.
pub(crate) fn list(
    store: &Store,
    showing: ResponseOptions,
    page: ListPage,
) -> Result<http::Response<Body>, ApiError> {
    let row = &store.row;
    let form = showing.form;
    let meta = table::list_meta(&page.revision.to_string(), &page.continue_token, page.remaining);
    match form.view {
        Representation::Object if form.format == Format::Protobuf => protobuf_list(store, form, page),
        Representation::Object => whole_list(store, form, &meta, page),
        Representation::Metadata { .. } => {
            let go = go_type(&row.gvk.api_version(), &row.list_kind, "UnstructuredList");
            Err(ApiError::NotAcceptableView {
                view: "PartialObjectMetadata",
                found: format!("a list ({go})"),
            })
        }
        Representation::MetadataList { beta } => {
            let version = if beta { "v1beta1" } else { "v1" };
            let head = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/{version}\",\"metadata\":{meta},\"items\":["
            );
            let items = page
                .entries
                .iter()
                .map(|entry| Ok(table::partial_metadata(&entry.record, entry.revision, beta)));
            json_text(StatusCode::OK, form, joined(head, items)?)
        }
        Representation::Table { beta } => {
            let head = table::table_head(&row.columns, beta, &meta, true);
            let entries = in_order(store, page.entries)?;
            let rows = entries.iter().map(|entry| entry_row(store, showing, entry, beta));
            json_text(StatusCode::OK, form, joined(head, rows)?)
        }
    }
}

/// The rows of a kind that is not shown by name.
fn in_order(store: &Store, entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, RegistryError> {
    let Some(order) = store.row.columns.order else {
        return Ok(entries);
    };
    let keyed = entries
        .into_iter()
        .map(|entry| Ok((order(store.decode(&entry)?.root()), entry)));
    let mut keyed = keyed.collect::<Result<Vec<_>, RegistryError>>()?;
    keyed.sort_by_key(|(place, _)| *place);
    Ok(keyed.into_iter().map(|(_, entry)| entry).collect())
}

fn joined(
    head: String,
    items: impl Iterator<Item = Result<Vec<u8>, RegistryError>>,
) -> Result<Vec<u8>, RegistryError> {
    let mut out = head.into_bytes();
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend(item?);
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

/// Reports whether a page is sent from the stored slices, without a copy of its own.
pub(crate) fn is_shared(row: &ResourceRow, form: ResponseFormat, page: &ListPage) -> bool {
    // Of an empty list the form alone decides.
    has_slices(form) && page.entries.iter().all(|entry| is_current(row, entry))
}

fn whole_list(
    store: &Store,
    form: ResponseFormat,
    meta: &str,
    page: ListPage,
) -> Result<http::Response<Body>, ApiError> {
    let row = &store.row;
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
        row.list_kind,
        row.gvk.api_version()
    );
    if is_shared(row, form, &page) {
        let frames = ListFrames::new(Bytes::from(head), page.entries, ObjectFrame::item(row));
        return Ok(framed(StatusCode::OK, form, Format::Json.media_type(), frames));
    }
    let items = page.entries.iter().map(|entry| {
        let mut object = store.decode(entry)?;
        if !row.custom {
            object.remove(&["kind"]);
            object.remove(&["apiVersion"]);
        }
        let mut json = Vec::new();
        encode_json(&object, &mut json);
        Ok(json)
    });
    json_text(StatusCode::OK, form, joined(head, items)?)
}

fn protobuf_list(
    store: &Store,
    form: ResponseFormat,
    page: ListPage,
) -> Result<http::Response<Body>, ApiError> {
    let row = &store.row;
    let (schema, ty) = machinery_api::schema_for(&row.gvk.group, &row.gvk.version, &row.list_kind)
        .ok_or_else(|| {
            ApiError::NotAcceptable(vec![
                Format::Json.media_type().into(),
                Format::Yaml.media_type().into(),
            ])
        })?;
    let mut list = Tree::new(schema, ty);
    list.set_str(&["kind"], &row.list_kind);
    list.set_str(&["apiVersion"], &row.gvk.api_version());
    list.set_str(&["metadata", "resourceVersion"], &page.revision.to_string());
    if !page.continue_token.is_empty() {
        list.set_str(&["metadata", "continue"], &page.continue_token);
    }
    if let Some(remaining) = page.remaining {
        list.set_i64(
            &["metadata", "remainingItemCount"],
            i64::try_from(remaining).unwrap_or(i64::MAX),
        );
    }
    let mut raw = Vec::new();
    encode_message(list.root(), &mut raw);
    for entry in &page.entries {
        let mut item = Vec::with_capacity(entry.record.len());
        encode_message(store.decode(entry)?.root(), &mut item);
        write_bytes(&mut raw, ITEMS, &item);
    }
    let body = close_envelope(&row.gvk.api_version(), &row.list_kind, &raw);
    Ok(bytes(StatusCode::OK, form, Format::Protobuf.media_type(), body))
}

/// The protobuf number of `items` in every list.
const ITEMS: u16 = 2;
