//! Reading other objects, and adding free-form pieces to one.

use crate::AdmissionError;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectKey};
use machinery_schema::{Ref, Strictness, Tree, decode_json};

pub(super) async fn find(
    reader: &dyn ObjectReader,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Option<ReadObject>, AdmissionError> {
    Ok(reader
        .get(
            &GroupResource::new(group, resource),
            &ObjectKey::new(namespace, name),
        )
        .await?)
}

/// The namespace of a request.
///
/// # Errors
/// There is none of this name.
pub(super) async fn namespace_of(
    reader: &dyn ObjectReader,
    name: &str,
) -> Result<ReadObject, AdmissionError> {
    let found = find(reader, "", "namespaces", "", name).await?;
    found.ok_or_else(|| AdmissionError::NotFound {
        resource: GroupResource::new("", "namespaces"),
        name: name.to_owned(),
    })
}

/// An annotation of an object that was read.
pub(super) fn annotation_in(object: &ReadObject, key: &str) -> Option<String> {
    let text = std::str::from_utf8(&object.json).ok()?;
    // Most objects have none of them, and are not parsed.
    if !text.contains(key) {
        return None;
    }
    let tree = Tree::from_json(text).ok()?;
    annotation(&tree, key).map(str::to_owned)
}

/// Appends a piece of JSON of our own to a list of the object.
pub(super) fn push_json(object: &mut Tree, path: &[&str], json: &str) {
    let piece = Tree::from_json(json).expect("the plugin's own JSON is well formed");
    object.push(path, piece.root());
}

/// A pod made of what a plugin adds to pods: read once, so that adding is a copy within one schema.
pub(super) fn pod_of(json: &str) -> Tree {
    let (schema, ty) = machinery_api::schema_for("", "v1", "Pod").expect("the table has pods");
    decode_json(schema, ty, json.as_bytes(), Strictness::Ignore)
        .expect("the plugin's own JSON is well formed")
        .tree
}

pub(super) fn annotation<'a>(object: &'a Tree, key: &str) -> Option<&'a str> {
    object.at(&["metadata", "annotations", key]).and_then(Ref::as_str)
}

pub(super) const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// A text as Go's `ParseBool` reads it.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
