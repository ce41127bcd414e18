//! Between trees in a served version and the records storage keeps.

use crate::engine::error::RegistryError;
use crate::engine::row::ResourceRow;
use crate::engine::selectable::Selectable;
use apiserver_storage::{Entry, Record};
use machinery_meta::{ObjectHeader, ObjectKey, OwnerRef, Uid};
use machinery_schema::{Exceeded, Ref, Strictness, Tree, decode_json, encode_split};
use std::sync::Arc;

/// The object of an entry, in the row's version, with the entry's revision in its metadata.
pub(crate) fn decode(row: &ResourceRow, entry: &Entry) -> Result<Tree, RegistryError> {
    let tree = decode_stored(row, entry)?;
    let stored = &row.stored;
    Ok(match &stored.conversion {
        Some(conversion) => conversion.to_served(&tree, &row.schema, row.ty),
        None => tree,
    }
    .with_type_meta(row))
}

/// An object of one row in another's version.
pub(crate) fn convert(from: &ResourceRow, to: &ResourceRow, object: &Tree) -> Result<Tree, RegistryError> {
    if from.stored.prefix != to.stored.prefix {
        return Err(RegistryError::Internal(format!(
            "{} is no version of {}",
            to.gvk.api_version(),
            from.group_resource()
        )));
    }
    let stored = match &from.stored.conversion {
        Some(conversion) => conversion.to_stored(object, &from.stored.schema, from.stored.ty),
        None => object.clone(),
    };
    let served = match &to.stored.conversion {
        Some(conversion) => conversion.to_served(&stored, &to.schema, to.ty),
        None => stored,
    };
    Ok(served.with_type_meta(to))
}

/// The record of an entry as the schema of now has it.
pub(crate) fn migrate_record(row: &ResourceRow, entry: &Entry) -> Result<Record, RegistryError> {
    let tree = decode_stored(row, entry)?;
    Ok(record(row, &as_stored(row, tree)))
}

/// Reports whether two records are of the same content, if perhaps in another order. Texts of it have one length, so that
/// a record that a field was added to, or taken from, is not read for it.
pub(crate) fn has_same_content(left: &Record, right: &Record) -> bool {
    if left.len() != right.len() {
        return false;
    }
    if left.parts.concat() == right.parts.concat() {
        return true;
    }
    let content = |record: &Record| {
        let document = document(record, "").ok()?;
        serde_json::from_str::<serde_json::Value>(&document.root().to_json()).ok()
    };
    matches!((content(left), content(right)), (Some(left), Some(right)) if left == right)
}

/// A record as a document without a schema, with a revision where it has one.
pub(crate) fn document(record: &Record, revision: &str) -> Result<Tree, RegistryError> {
    let [meta, head, tail] = &record.parts;
    let mut text = Vec::with_capacity(record.len() + revision.len() + 3);
    text.push(b'{');
    for part in [&meta[..], &head[..], b"\"", revision.as_bytes(), b"\"", &tail[..]] {
        text.extend_from_slice(part);
    }
    let text = String::from_utf8(text).map_err(|error| RegistryError::Internal(error.to_string()))?;
    Tree::from_json(&text).map_err(|error| RegistryError::Internal(error.to_string()))
}

/// The object of an entry, in the version it is stored in.
fn decode_stored(row: &ResourceRow, entry: &Entry) -> Result<Tree, RegistryError> {
    let parts = &entry.record.parts;
    let revision = entry.revision.to_string();
    let mut text = Vec::with_capacity(entry.record.len() + revision.len() + 3);
    text.push(b'{');
    for part in [
        &parts[0][..],
        &parts[1][..],
        b"\"",
        revision.as_bytes(),
        b"\"",
        &parts[2][..],
    ] {
        text.extend_from_slice(part);
    }
    let stored = &row.stored;
    let decoded = decode_json(&stored.schema, stored.ty, &text, Strictness::Ignore)
        .map_err(|error| RegistryError::Internal(format!("reading {}: {error}", entry.key)))?;
    let mut tree = decoded.tree;
    if entry.record.fingerprint != stored.fingerprint {
        renormalise(row, &mut tree);
    }
    Ok(tree)
}

/// A record of an older schema: pruned while decoding, defaulted here.
pub(crate) fn renormalise(row: &ResourceRow, tree: &mut Tree) {
    machinery_schema::apply_defaults(tree);
    row.strategy.defaults(tree);
}

trait WithTypeMeta {
    fn with_type_meta(self, row: &ResourceRow) -> Self;
}

impl WithTypeMeta for Tree {
    fn with_type_meta(mut self, row: &ResourceRow) -> Self {
        let api_version = row.gvk.api_version();
        if self.str_at(&["apiVersion"]) != api_version {
            self.set_str(&["apiVersion"], &api_version);
        }
        if self.str_at(&["kind"]) != row.gvk.kind {
            self.set_str(&["kind"], &row.gvk.kind);
        }
        self
    }
}

/// The record of an object in the row's version.
pub(crate) fn encode(row: &ResourceRow, object: &Tree) -> Result<Record, RegistryError> {
    let stored = &row.stored;
    within_bounds(object)?;
    Ok(match &stored.conversion {
        Some(conversion) => {
            let converted = conversion.to_stored(object, &stored.schema, stored.ty);
            within_bounds(&converted)?;
            record(row, &as_stored(row, converted))
        }
        None => record(row, object),
    })
}

/// An object that a write to it would have made too deep or too large is not what the client requested.
fn within_bounds(object: &Tree) -> Result<(), RegistryError> {
    object.check_bounds().map_err(|bound| match bound {
        Exceeded::Depth => RegistryError::BadRequest(bound.to_string()),
        Exceeded::Size | Exceeded::Steps => RegistryError::TooLargePatch(bound.to_string()),
    })
}

/// Says of an object in stored form that it is.
pub(crate) fn as_stored(row: &ResourceRow, mut object: Tree) -> Tree {
    object.set_str(&["apiVersion"], &row.stored.gvk.api_version());
    object.set_str(&["kind"], &row.stored.gvk.kind);
    object
}

/// The record of an object in stored form.
pub(crate) fn record(row: &ResourceRow, object: &Tree) -> Record {
    record_as(row.stored.fingerprint, &row.selectable, object)
}

/// The record of an object in the form of this fingerprint.
pub(crate) fn record_as(fingerprint: u64, selectable: &[Selectable], object: &Tree) -> Record {
    let split = encode_split(object);
    Record {
        parts: [split.type_meta, split.head, split.tail],
        fingerprint,
        header: Arc::new(header(selectable, object)),
    }
}

/// The header of an object in stored form.
pub(crate) fn header(selectable: &[Selectable], object: &Tree) -> ObjectHeader {
    let root = object.root();
    let Some(meta) = root.get("metadata") else {
        return ObjectHeader::default();
    };
    let boxed = |text: &str| -> Box<str> { text.into() };
    let present = |name: &str| Some(meta.str(name)).filter(|text| !text.is_empty()).map(boxed);
    let mut labels: Vec<(Box<str>, Box<str>)> = meta
        .get("labels")
        .into_iter()
        .flat_map(Ref::entries)
        .map(|(key, value)| (boxed(key), boxed(value.as_str().unwrap_or_default())))
        .collect();
    labels.sort();
    let fields = selectable.iter().map(|field| (&*field.label, field.value(root)));
    ObjectHeader {
        key: ObjectKey::new(meta.str("namespace"), meta.str("name")),
        uid: Uid(meta.str("uid").to_owned()),
        generation: meta.get("generation").and_then(Ref::as_i64).unwrap_or(0),
        labels,
        owners: meta.list("ownerReferences").map(owner).collect(),
        finalizers: meta
            .list("finalizers")
            .filter_map(Ref::as_str)
            .map(boxed)
            .collect(),
        creation_timestamp: present("creationTimestamp"),
        deletion_timestamp: present("deletionTimestamp"),
        fields: fields.collect(),
    }
}

fn owner(reference: Ref<'_>) -> OwnerRef {
    let flag = |name: &str| reference.get(name).and_then(Ref::as_bool) == Some(true);
    OwnerRef {
        api_version: reference.str("apiVersion").into(),
        kind: reference.str("kind").into(),
        name: reference.str("name").into(),
        uid: Uid(reference.str("uid").to_owned()),
        controller: flag("controller"),
        block_owner_deletion: flag("blockOwnerDeletion"),
    }
}
