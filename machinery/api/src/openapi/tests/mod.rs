use super::{BuiltInKind, CustomKind, render, v2};
use serde_json::Value;

mod upstream;

fn built_in<'a>(group: &'a str, version: &'a str) -> Vec<BuiltInKind<'a>> {
    let kinds = crate::table().kinds_of(group, version);
    let own = kinds.map(|kind| BuiltInKind {
        kind,
        returns_deleted: upstream::RETURN_DELETED.contains(&kind.gvk.kind.as_str()),
    });
    own.collect()
}

fn document(group: &str, version: &str, custom: &[CustomKind<'_>]) -> Value {
    let kinds = built_in(group, version);
    serde_json::from_slice(&render(group, version, &kinds, custom, "v1.37.0")).unwrap()
}

/// Every reference in a document leads somewhere.
fn check_references(value: &Value, schemas: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get("$ref") {
                let model = target.strip_prefix("#/components/schemas/").unwrap();
                assert!(
                    schemas.get(model).is_some_and(|own| !own.is_null()),
                    "{model} is not there"
                );
            }
            members.values().for_each(|own| check_references(own, schemas));
        }
        Value::Array(items) => items.iter().for_each(|own| check_references(own, schemas)),
        _ => {}
    }
}

#[test]
fn openapi_v3_every_group_version_is_complete() {
    for group in crate::table().groups() {
        for version in &group.versions {
            let document = document(&group.name, version, &[]);
            check_references(&document, &document["components"]["schemas"]);
            assert!(
                document["paths"].as_object().unwrap().len() > 1,
                "{} {version}",
                group.name
            );
        }
    }
}

#[test]
fn openapi_explains_a_deployment() {
    let document = document("apps", "v1", &[]);
    let own = &document["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"];
    assert!(
        own["properties"]["replicas"]["description"]
            .as_str()
            .unwrap()
            .starts_with("Number of desired pods")
    );
    assert_eq!(own["properties"]["replicas"]["format"], "int32");
    assert_eq!(own["required"], serde_json::json!(["selector", "template"]));
    let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(pod["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(pod["x-kubernetes-list-map-keys"], serde_json::json!(["name"]));
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    assert!(
        patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|own| own["name"] == "fieldValidation")
    );
}

#[test]
fn custom_kinds_have_what_every_object_has() {
    let kind = widget(
        r#"{"type":"object","properties":{"spec":{"type":"object","description":"what it should be"}}}"#,
    );
    let document = document("example.com", "v1", &[kind]);
    check_references(&document, &document["components"]["schemas"]);
    let own = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(own["properties"]["spec"]["description"], "what it should be");
    assert_eq!(own["properties"]["kind"]["type"], "string");
}

/// The v2 document of everything built in, and of these custom kinds in `example.com/v1`.
fn whole(custom: Vec<CustomKind<'_>>, form: v2::Form) -> Vec<u8> {
    whole_with("example.com", custom, form)
}

fn whole_with(group: &str, custom: Vec<CustomKind<'_>>, form: v2::Form) -> Vec<u8> {
    let groups = crate::table().groups().iter();
    let mut parts: Vec<_> = groups
        .flat_map(|own| own.versions.iter().map(move |version| (&*own.name, version)))
        .map(|(group, version)| v2::GroupVersionKinds {
            group,
            version,
            kinds: built_in(group, version),
            custom: Vec::new(),
        })
        .collect();
    parts.push(v2::GroupVersionKinds {
        group,
        version: "v1",
        kinds: Vec::new(),
        custom,
    });
    v2::render(&parts, &[], "v1.37.0", form)
}

/// Every reference leads to a definition or a parameter, and no word of v3 is left.
fn check_v2(value: &Value, document: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get("$ref") {
                let (section, name) = target.strip_prefix("#/").unwrap().split_once('/').unwrap();
                assert!(["definitions", "parameters"].contains(&section), "{target}");
                assert!(document[section].get(name).is_some(), "{target} is not there");
            }
            members.values().for_each(|own| check_v2(own, document));
        }
        Value::Array(items) => items.iter().for_each(|own| check_v2(own, document)),
        _ => {}
    }
}

fn widget(schema: &str) -> CustomKind<'_> {
    CustomKind {
        group: "example.com",
        version: "v1",
        kind: "Widget",
        list_kind: "WidgetList",
        plural: "widgets",
        namespaced: true,
        schema: Some(schema),
        status: true,
        scale: true,
    }
}

#[test]
fn openapi_v2_document_is_complete() {
    let schema = r#"{"type":"object","properties":{
        "spec":{"type":"object","properties":{"size":{"type":"integer","default":3}}},
        "template":{"type":"object","x-kubernetes-embedded-resource":true}}}"#;
    let document: Value = serde_json::from_slice(&whole(vec![widget(schema)], v2::Form::Json)).unwrap();
    assert_eq!(document["swagger"], "2.0");
    check_v2(&document, &document);
    let definitions = &document["definitions"];
    let quantity = &definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["type"], "string");
    let template = &definitions["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["template"];
    assert_eq!(
        template["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"
    );
    let own = &definitions["com.example.v1.Widget"];
    assert_eq!(
        own["properties"]["spec"]["properties"]["size"],
        serde_json::json!({"type": "integer"})
    );
    assert_eq!(
        own["properties"]["template"]["required"],
        serde_json::json!(["kind", "apiVersion"])
    );
    let post = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(
        post["parameters"][0]["schema"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.Pod"
    );
}

#[test]
fn openapi_v2_kind_with_unknown_members_names_none() {
    let schema = r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"type":"object"}}}"#;
    let document: Value = serde_json::from_slice(&whole(vec![widget(schema)], v2::Form::Json)).unwrap();
    let own = &document["definitions"]["com.example.v1.Widget"];
    assert_eq!(own["type"], "object");
    assert!(own.get("properties").is_none());
}

#[test]
fn openapi_v3_int_or_string_names_both_types() {
    let schema = r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"p":{"x-kubernetes-int-or-string":true}}}},"x-kubernetes-selectable-fields":[{"fieldPath":"spec.p"}]}"#;
    let document = document("example.com", "v1", &[widget(schema)]);
    let own = &document["components"]["schemas"]["com.example.v1.Widget"];
    let both = serde_json::json!([{"type": "integer"}, {"type": "string"}]);
    assert_eq!(own["properties"]["spec"]["properties"]["p"]["anyOf"], both);
    assert_eq!(own["x-kubernetes-selectable-fields"][0]["fieldPath"], "spec.p");
}
