//! Invariants of every built-in kind.

use machinery_schema::{Shape, Strictness, Tree, decode_json, encode_json};

#[test]
fn table_every_stored_kind_has_metadata_and_list() {
    for kind in crate::table().kinds() {
        let schema = crate::schema();
        assert_eq!(schema.ty(kind.ty).shape, Shape::Struct, "{}", kind.gvk);
        if kind.etcd_prefix.is_some() {
            assert!(schema.field(kind.ty, "metadata").is_some(), "{}", kind.gvk);
            assert!(kind.list_ty.is_some(), "{}", kind.gvk);
        }
        for subresource in &kind.subresources {
            let known = subresource.ty.is_some() || subresource.gvk.kind.ends_with("Options");
            assert!(known, "{} {}: {}", kind.gvk, subresource.name, subresource.gvk);
        }
    }
}

#[test]
fn table_zero_value_is_its_normal_form() {
    for kind in crate::table().kinds() {
        let tree = Tree::new(crate::schema(), kind.ty);
        let mut text = Vec::new();
        encode_json(&tree, &mut text);
        let again = decode_json(crate::schema(), kind.ty, &text, Strictness::Report).unwrap();
        assert!(again.strict_errors.is_empty());
        assert_eq!(again.tree.root().to_json(), String::from_utf8(text).unwrap());
    }
}

#[track_caller]
fn normal(group: &str, version: &str, kind: &str, input: &str, expected: &str) {
    let (schema, ty) = crate::schema_for(group, version, kind).unwrap();
    let decoded = decode_json(schema, ty, input.as_bytes(), Strictness::Report).unwrap();
    assert_eq!(decoded.strict_errors, [""; 0]);
    assert_eq!(decoded.tree.root().to_json(), expected);
}

#[test]
fn documents_take_upstreams_form() {
    normal(
        "apps",
        "v1",
        "Deployment",
        r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","creationTimestamp":null},"spec":{"replicas":0,"selector":null,"template":{}}}"#,
        r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"a"},"spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}}"#,
    );
    normal(
        "",
        "v1",
        "Secret",
        r#"{"data":{"a":null,"b":"aGk="}}"#,
        r#"{"metadata":{},"data":{"a":"","b":"aGk="}}"#,
    );
    normal(
        "",
        "v1",
        "Service",
        r#"{"spec":{"ports":[{"port":1}]}}"#,
        r#"{"metadata":{},"spec":{"ports":[{"port":1,"targetPort":0}]},"status":{"loadBalancer":{}}}"#,
    );
    normal(
        "apps",
        "v1",
        "ControllerRevision",
        r#"{"revision":1}"#,
        r#"{"metadata":{},"data":null,"revision":1}"#,
    );
    normal(
        "batch",
        "v1",
        "DeleteOptions",
        r#"{"gracePeriodSeconds":0}"#,
        r#"{"gracePeriodSeconds":0}"#,
    );
}

#[test]
fn custom_resource_definitions_keep_their_forms() {
    let text = r#"{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","default":[1, 2]},"x-kubernetes-list-type":"set"},"b":{"additionalProperties":false},"c":{"additionalProperties":{"type":"string"}}}}}"#;
    let input = format!(
        r#"{{"spec":{{"group":"g","versions":[{{"name":"v1","served":true,"storage":true,"schema":{text}}}],"names":{{"plural":"p","kind":"K"}},"scope":"Cluster"}}}}"#
    );
    let (schema, ty) = crate::schema_for("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let tree = decode_json(schema, ty, input.as_bytes(), Strictness::Report)
        .unwrap()
        .tree;
    let version = tree.at(&["spec", "versions"]).unwrap().item(0).unwrap();
    assert_eq!(version.get("schema").unwrap().to_json().len(), text.len() - 1);
    let items = version
        .at(&["schema", "openAPIV3Schema", "properties", "a", "items"])
        .unwrap();
    assert_eq!(items.str("type"), "string");
    assert_eq!(items.get("default").unwrap().as_raw(), Some("[1,2]"));
    let closed = version
        .at(&[
            "schema",
            "openAPIV3Schema",
            "properties",
            "b",
            "additionalProperties",
        ])
        .unwrap();
    assert_eq!(closed.as_bool(), Some(false));
}

#[test]
fn protobuf_every_kind_round_trips_with_all_fields() {
    for kind in crate::table().kinds() {
        for seed in 0..3 {
            let full = crate::samples::full(kind.ty, seed);
            let tree = crate::samples::with_type_meta(full, &kind.gvk.api_version(), &kind.gvk.kind);
            let body = machinery_schema::encode_protobuf(&tree);
            let again = machinery_schema::decode_protobuf(crate::schema(), kind.ty, &body).unwrap();
            let (got, expected) = (again.root().to_json(), tree.root().to_json());
            let differ = got
                .bytes()
                .zip(expected.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let near = |text: &str| {
                String::from_utf8_lossy(&text.as_bytes()[differ.saturating_sub(150)..])
                    .chars()
                    .take(250)
                    .collect::<String>()
            };
            assert!(
                got == expected,
                "{} {seed}\n got {}\nwant {}",
                kind.gvk,
                near(&got),
                near(&expected)
            );
        }
    }
}
