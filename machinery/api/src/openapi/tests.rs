use super::{CustomKind, render};
use serde_json::Value;

fn document(group: &str, version: &str, custom: &[CustomKind<'_>]) -> Value {
    let kinds: Vec<_> = crate::table().kinds_of(group, version).collect();
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
fn every_group_version_is_whole() {
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
fn a_deployment_is_explained() {
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
    let kind = CustomKind {
        group: "example.com",
        version: "v1",
        kind: "Widget",
        list_kind: "WidgetList",
        plural: "widgets",
        namespaced: true,
        schema: Some(
            r#"{"type":"object","properties":{"spec":{"type":"object","description":"what it should be"}}}"#,
        ),
        status: true,
        scale: true,
    };
    let document = document("example.com", "v1", &[kind]);
    check_references(&document, &document["components"]["schemas"]);
    let own = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(own["properties"]["spec"]["description"], "what it should be");
    assert_eq!(own["properties"]["kind"]["type"], "string");
}
