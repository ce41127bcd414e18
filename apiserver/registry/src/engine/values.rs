//! Records as the plain objects that etcd holds, readable by upstream's servers and read from theirs.
//!
//! The row is found by the key. Written is JSON in the version the row is stored in; read is JSON and protobuf, in
//! whichever served version the value says it is. A value under a key that no row serves (a bitmap of ports, objects
//! of a definition that is going) is read by the type its value names.

use crate::engine::codec;
use crate::engine::row::ResourceRow;
use crate::engine::rows::Rows;
use apiserver_storage::{Key, Record, RecordCodec};
use arc_swap::ArcSwap;
use machinery_meta::{GroupVersion, GroupVersionKind};
use machinery_schema::protobuf::{MAGIC, open_envelope};
use machinery_schema::{Schema, Strictness, Tree, TypeId, decode_json, decode_protobuf, encode_split};
use serde::Deserialize;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct ObjectValues(Arc<ArcSwap<Rows>>);

impl ObjectValues {
    pub(crate) fn new(rows: Arc<ArcSwap<Rows>>) -> Self {
        Self(rows)
    }
}

impl RecordCodec for ObjectValues {
    fn encode(&self, _: &Key, record: &Record) -> Result<Vec<u8>, String> {
        let [type_meta, head, tail] = &record.parts;
        let mut value = Vec::with_capacity(record.len() + 3);
        // The revision is the store's to say; in the value it is empty, as in upstream's.
        for part in [b"{", &type_meta[..], &head[..], b"\"\"", &tail[..]] {
            value.extend_from_slice(part);
        }
        Ok(value)
    }

    fn decode(&self, key: &Key, value: &[u8]) -> Result<Record, String> {
        let own = own_kind(value)?;
        let rows = self.0.load();
        match rows.at_key(key.as_str()) {
            Some(row) if row.custom && row.stored.webhook.is_some() => converting(&rows, row, &own, value),
            Some(row) if row.custom => custom(row, value),
            Some(row) => built_in(&rows, row, &own, value),
            None => unserved(&own, value),
        }
    }
}

#[derive(Deserialize)]
struct TypeMeta<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    kind: std::borrow::Cow<'a, str>,
}

/// The kind that a value names.
fn own_kind(value: &[u8]) -> Result<GroupVersionKind, String> {
    let of = |api_version: &str, kind: &str| {
        let version: GroupVersion = api_version
            .parse()
            .map_err(|_| format!("{api_version:?} is no version of an API"))?;
        Ok(version.kind(kind))
    };
    if value.starts_with(MAGIC) {
        let envelope = open_envelope(value).map_err(|error| error.to_string())?;
        return of(envelope.api_version, envelope.kind);
    }
    if value.starts_with(b"k8s:enc:") {
        return Err("the value is encrypted, and no key was given".to_owned());
    }
    let meta: TypeMeta<'_> = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    of(&meta.api_version, &meta.kind)
}

fn read(schema: &Arc<Schema>, ty: TypeId, value: &[u8]) -> Result<Tree, String> {
    let tree = if value.starts_with(MAGIC) {
        decode_protobuf(schema, ty, value)
    } else {
        decode_json(schema, ty, value, Strictness::Ignore).map(|decoded| decoded.tree)
    };
    tree.map_err(|error| error.to_string())
}

/// All versions of a custom kind share their members; the schema of the stored one says which there are.
fn custom(row: &ResourceRow, value: &[u8]) -> Result<Record, String> {
    let stored = &row.stored;
    let mut tree = read(&stored.schema, stored.ty, value)?;
    codec::renormalise(row, &mut tree);
    Ok(codec::record(row, &codec::as_stored(row, tree)))
}

/// Objects that a webhook converts stay in the version that they say; one that is not served is read without a schema.
fn converting(
    rows: &Rows,
    row: &Arc<ResourceRow>,
    own: &GroupVersionKind,
    value: &[u8],
) -> Result<Record, String> {
    let version = rows
        .all()
        .find(|version| version.gvk == *own && version.stored.prefix == row.stored.prefix);
    version.map_or_else(|| unserved(own, value), |version| custom(version, value))
}

fn built_in(
    rows: &Rows,
    row: &Arc<ResourceRow>,
    own: &GroupVersionKind,
    value: &[u8],
) -> Result<Record, String> {
    let old_form = row.built_in.and_then(|kind| kind.old_form);
    if let Some(old_form) = old_form.filter(|old| *own.version == *old.version && own.kind == row.gvk.kind) {
        let value = (old_form.read)(value)?;
        return built_in(rows, row, &row.stored.gvk, &value);
    }
    let version = rows
        .all()
        .find(|row_of_own| row_of_own.gvk == *own && row_of_own.stored.prefix == row.stored.prefix)
        .ok_or_else(|| format!("no {} of {} is stored here", own.kind, own.api_version()))?;
    let mut tree = read(&version.schema, version.ty, value)?;
    codec::renormalise(version, &mut tree);
    codec::encode(version, &tree).map_err(|error| error.to_string())
}

fn unserved(own: &GroupVersionKind, value: &[u8]) -> Result<Record, String> {
    let untyped = Tree::untyped();
    let (schema, ty) = machinery_api::schema_for(&own.group, &own.version, &own.kind)
        .unwrap_or((untyped.schema(), untyped.ty()));
    let tree = read(schema, ty, value)?;
    let split = encode_split(&tree);
    Ok(Record {
        parts: [split.type_meta, split.head, split.tail],
        fingerprint: 0,
        header: Arc::new(codec::header(&[], &tree)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use machinery_schema::encode_protobuf;
    use std::collections::BTreeMap;

    fn values() -> ObjectValues {
        let rows = kinds::built_in_rows().into_iter().map(Arc::new).collect();
        ObjectValues::new(Arc::new(ArcSwap::from_pointee(Rows::rebuilt(
            rows,
            BTreeMap::new(),
            1,
        ))))
    }

    fn text(values: &ObjectValues, key: &Key, record: &Record) -> String {
        String::from_utf8(values.encode(key, record).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(key: &str, value: &[u8], expected: &str) -> Record {
        let (values, key) = (values(), Key::parse(key).unwrap());
        let record = values.decode(&key, value).unwrap();
        let stored = text(&values, &key, &record);
        assert!(stored.contains(expected), "{stored}");
        let again = values.decode(&key, stored.as_bytes()).unwrap();
        assert_eq!(
            text(&values, &key, &again),
            stored,
            "what was written reads the same"
        );
        record
    }

    #[test]
    fn protobuf_of_another_server_is_read() {
        let json = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","labels":{"a":"b"}},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}}"#;
        let (schema, ty) = machinery_api::schema_for("", "v1", "Pod").unwrap();
        let pod = decode_json(schema, ty, json.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree;
        let record = check(
            "/registry/pods/shop/web",
            &encode_protobuf(&pod),
            r#""name":"web""#,
        );
        assert_eq!(record.header.field("spec.nodeName"), Some("n1"));
        assert_eq!(record.header.label("a"), Some("b"));
        let pods = kinds::built_in_rows()
            .into_iter()
            .find(|row| row.plural == "pods")
            .unwrap();
        assert_eq!(
            record.fingerprint, pods.stored.fingerprint,
            "it can be sent as it is"
        );
    }

    #[test]
    fn another_served_version_is_converted() {
        let json = r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"web","namespace":"shop"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":3,"targetCPUUtilizationPercentage":80}}"#;
        check(
            "/registry/horizontalpodautoscalers/shop/web",
            json.as_bytes(),
            r#""averageUtilization":80"#,
        );
    }

    #[test]
    fn values_upstream_definition_is_read() {
        let json = r#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1beta1","metadata":{"name":"b.g"},"spec":{"group":"g","version":"v1","names":{"plural":"b","kind":"B"},"scope":"Namespaced","validation":{"openAPIV3Schema":{"type":"object"}},"versions":[{"name":"v1","served":true,"storage":true}],"preserveUnknownFields":false},"status":{"conditions":[],"acceptedNames":{"plural":"b","kind":"B"},"storedVersions":["v1"]}}"#;
        check(
            "/registry/apiextensions.k8s.io/customresourcedefinitions/b.g",
            json.as_bytes(),
            r#""schema":{"openAPIV3Schema":{"type":"object"}}"#,
        );
    }

    #[test]
    fn values_unserved_value_is_kept_by_its_type() {
        let range = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"30000-32767","data":"AQ=="}"#;
        check(
            "/registry/ranges/servicenodeports",
            range.as_bytes(),
            r#""data":"AQ==""#,
        );
        let boat = r#"{"kind":"Boat","apiVersion":"knarr.test/v1","metadata":{"name":"b","namespace":"n"},"spec":{"oars":3}}"#;
        let record = check("/registry/knarr.test/boats/n/b", boat.as_bytes(), r#""oars":3"#);
        assert_eq!(&*record.header.key.name, "b");
    }

    #[test]
    fn values_fuzz_never_panics() {
        let json = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c"}]}}"#;
        let (schema, ty) = machinery_api::schema_for("", "v1", "Pod").unwrap();
        let pod = decode_json(schema, ty, json.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree;
        let (values, key) = (values(), Key::parse("/registry/pods/shop/web").unwrap());
        // What is made once for a kind is there before an input is metered.
        values.decode(&key, json.as_bytes()).unwrap();
        machinery_fuzz::fuzz([encode_protobuf(&pod), json.as_bytes().to_vec()], |input| {
            // A tree takes some words for each value, and is there beside its text.
            if let Ok(record) = machinery_fuzz::in_proportion(input, 64, || values.decode(&key, input)) {
                let written = values.encode(&key, &record).unwrap();
                assert_eq!(values.decode(&key, &written).unwrap(), record);
            }
        });
    }

    #[test]
    fn values_unreadable_value_has_reason() {
        let key = Key::parse("/registry/pods/shop/web").unwrap();
        for (value, expected) in [
            (&b"k8s:enc:aescbc:v1:key1:xx"[..], "encrypted"),
            (b"k8s\0\xff\xff", ""),
            (b"", "EOF"),
            (
                br#"{"kind":"Job","apiVersion":"batch/v1"}"#,
                "no Job of batch/v1 is stored here",
            ),
        ] {
            let problem = values().decode(&key, value).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
