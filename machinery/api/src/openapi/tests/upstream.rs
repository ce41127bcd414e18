//! Comparison with upstream's published documents, by what `cargo xtask codegen` notes of them in `testdata/`.
//!
//! `schemas.tsv` has the hash of each model's schema. `operations.tsv` has the operations, with two definitions of custom kinds.
//! There, a line that begins with `=` is what many operations have in common, after its number: `consumes`, `produces`, parameters and
//! statuses. A line without a tab in front is a path, and the lines with one below it are its operations: method, number of the
//! common line, id, tags, action, group/version/kind, the kind that the parameter `name` speaks of, model of the body, model of
//! the answer, hash of the description. A parameter ends in the hash that upstream names it by when it is shared, which covers
//! its words; of a body the line says whether it is required.

use super::*;
use crate::openapi::{Edition, paths, render_root, root_addresses};
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};

const OPERATIONS: &str = include_str!("../testdata/operations.tsv");

const SCHEMAS: &str = include_str!("../testdata/schemas.tsv");

/// Kinds whose deletions answer with the object: `ReturnDeletedObject` of upstream's stores, and `returned` of the registry's rows.
pub(super) const RETURN_DELETED: [&str; 16] = [
    "CSIDriver",
    "CSINode",
    "DeviceClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceSlice",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// Operations by path and method, each as one line of text.
type Operations = BTreeMap<(String, String), String>;

/// Operations that upstream publishes, in the form of [`line`].
fn published(edition: Edition) -> Operations {
    let mut shapes = Vec::new();
    let mut path = "";
    let mut out = Operations::new();
    for own in OPERATIONS.lines() {
        if let Some(shape) = own.strip_prefix('=') {
            let (_, shape) = shape.split_once('\t').unwrap();
            shapes.push(shape.split('\t').collect::<Vec<_>>());
        } else if let Some(operation) = own.strip_prefix('\t') {
            let parts: Vec<&str> = operation.splitn(3, '\t').collect();
            let shape = &shapes[parts[1].parse::<usize>().unwrap()];
            let has_body = shape[2].contains("body=");
            let text = line(
                edition,
                has_body,
                &words(shape[0]),
                &words(shape[1]),
                shape[2],
                shape[3],
                parts[2],
            );
            out.insert((path.to_owned(), parts[0].to_owned()), text);
        } else {
            path = own;
        }
    }
    out
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Documents of v3 name the forms of a request with its body and know no order of forms.
fn line(
    edition: Edition,
    has_body: bool,
    consumes: &[&str],
    produces: &[&str],
    parameters: &str,
    codes: &str,
    facts: &str,
) -> String {
    let (mut consumes, mut produces) = (consumes.to_vec(), produces.to_vec());
    if edition == Edition::V3 {
        consumes.retain(|_| has_body);
        consumes.sort_unstable();
        produces.sort_unstable();
    }
    format!("{consumes:?} {produces:?} {parameters} {codes} {facts}")
}

/// The operations of a document, with the parameters that it shares.
fn operations(document: &Value, edition: Edition) -> Operations {
    let mut out = Operations::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        // An addition to what upstream serves itself.
        if path.starts_with("/apis/metrics.k8s.io/") {
            continue;
        }
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| *name != "parameters")
        {
            let mut parameters = Vec::new();
            for own in [operation, item] {
                parameters.extend(own["parameters"].as_array().into_iter().flatten());
            }
            let text = facts(document, operation, &parameters, edition);
            out.insert((path.clone(), method.clone()), text);
        }
    }
    out
}

fn facts(document: &Value, operation: &Value, parameters: &[&Value], edition: Edition) -> String {
    let (mut names, mut named, mut body) = (Vec::new(), "", String::new());
    for own in parameters {
        let target = own["$ref"]
            .as_str()
            .and_then(|own| own.strip_prefix("#/parameters/"));
        let own = target.map_or(*own, |name| &document["parameters"][name]);
        if own["in"] == "body" {
            names.push(format!("body={}", own["required"] == true));
            body = model(&own["schema"]);
        } else if own["name"] == "name" {
            names.push("name".to_owned());
            named = own["description"]
                .as_str()
                .unwrap()
                .strip_prefix("name of the ")
                .unwrap();
        } else {
            names.push(hashed(own));
        }
    }
    let request = &operation["requestBody"];
    if let Some(content) = request["content"].as_object() {
        names.push(format!("body={}", request["required"] == true));
        body = model(&content.values().next().unwrap()["schema"]);
    }
    names.sort();
    let responses = operation["responses"].as_object().unwrap();
    let codes: Vec<&str> = responses.keys().map(String::as_str).collect();
    let answer = &responses["200"];
    let answer_content = answer["content"].as_object();
    let schema = answer_content.map_or(
        &answer["schema"],
        |content| &content.values().next().unwrap()["schema"],
    );
    for (code, other) in responses.iter().filter(|(code, _)| *code != "401") {
        assert_eq!(
            (&other["content"], &other["schema"]),
            (&answer["content"], &answer["schema"]),
            "{code}"
        );
    }
    let (consumes, produces) = match edition {
        Edition::V2 => (texts(&operation["consumes"]), texts(&operation["produces"])),
        Edition::V3 => (keys(&request["content"]), keys(&answer["content"])),
    };
    let kind = &operation["x-kubernetes-group-version-kind"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = [
        text(&operation["operationId"]),
        texts(&operation["tags"]).join(" "),
        text(&operation["x-kubernetes-action"]),
        format!(
            "{}/{}/{}",
            text(&kind["group"]),
            text(&kind["version"]),
            text(&kind["kind"])
        ),
        named.to_owned(),
        body.clone(),
        model(schema),
        paths::hash(text(&operation["description"]).as_bytes()),
    ];
    let has_body = !body.is_empty();
    line(
        edition,
        has_body,
        &consumes,
        &produces,
        &names.join(" "),
        &codes.join(" "),
        &own.join("\t"),
    )
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect()
}

fn model(schema: &Value) -> String {
    let target = schema["$ref"].as_str().and_then(|own| own.rsplit('/').next());
    target.or(schema["type"].as_str()).unwrap_or_default().to_owned()
}

/// A parameter's name with its hash.
fn hashed(own: &Value) -> String {
    let mut members: Map<String, Value> = own.as_object().unwrap().clone();
    if let Some(Value::Object(schema)) = members.remove("schema") {
        members.extend(schema);
    }
    let order = ["uniqueItems", "type", "description", "name", "in", "required"];
    assert!(members.keys().all(|name| order.contains(&name.as_str())), "{own}");
    let known = order.iter().filter_map(|name| members.get_key_value(*name));
    let known: Vec<(&str, Value)> = known
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let name = own["name"].as_str().unwrap();
    format!("{name}-{}", paths::hash(paths::text(&known).as_bytes()))
}

#[track_caller]
fn check(edition: Edition, own: &Operations) {
    let published = published(edition);
    let mut differing = Vec::new();
    for (key, text) in &published {
        if own.get(key) != Some(text) {
            differing.push(format!(
                "{key:?}\n  upstream {text}\n  ours     {:?}",
                own.get(key)
            ));
        }
    }
    let more = own.keys().filter(|key| !published.contains_key(key));
    differing.extend(more.map(|key| format!("{key:?} is not upstream's")));
    let shown = differing.len().min(3);
    assert!(
        differing.is_empty(),
        "{} differ:\n{}",
        differing.len(),
        differing[..shown].join("\n")
    );
}

/// The definitions that the facts were made with.
fn custom() -> Vec<CustomKind<'static>> {
    let crontab = CustomKind {
        group: "stable.example.com",
        version: "v1",
        kind: "CronTab",
        list_kind: "CronTabList",
        plural: "crontabs",
        namespaced: true,
        schema: Some(r#"{"type":"object"}"#),
        status: true,
        scale: true,
    };
    let anvil = CustomKind {
        kind: "Anvil",
        list_kind: "AnvilList",
        plural: "anvils",
        namespaced: false,
        status: false,
        scale: false,
        ..crontab
    };
    vec![crontab, anvil]
}

#[test]
fn openapi_v2_operations_are_upstreams() {
    let text = whole_with("stable.example.com", custom(), v2::Form::Json);
    let document: Value = serde_json::from_slice(&text).unwrap();
    check(Edition::V2, &operations(&document, Edition::V2));
    let shapes = OPERATIONS.lines().filter_map(|line| line.strip_prefix('='));
    let mut shared: BTreeSet<&str> = shapes
        .filter_map(|shape| shape.split('\t').nth(3))
        .flat_map(str::split_whitespace)
        .filter(|own| {
            own.contains('-') && !own.starts_with("dryRun-") && !own.starts_with("fieldValidation-")
        })
        .collect();
    // Options of deletions, and patches.
    shared.extend(["body-2Y1dVQaQ", "body-78PwaGsr"]);
    assert_eq!(
        keys(&document["parameters"]),
        shared.into_iter().collect::<Vec<_>>()
    );
}

/// All documents of v3 but those of custom kinds.
fn documents() -> Vec<Value> {
    let mut out = Vec::new();
    let mut add = |text: &[u8]| out.push(serde_json::from_slice(text).unwrap());
    for group in crate::table().groups() {
        for version in &group.versions {
            let kinds = built_in(&group.name, version);
            if !kinds.is_empty() {
                add(&render(&group.name, version, &kinds, &[], "1.37"));
            }
        }
        if !group.name.is_empty() {
            add(&render_root(&format!("apis/{}", group.name), "1.37").unwrap());
        }
    }
    for address in root_addresses() {
        add(&render_root(address, "1.37").unwrap());
    }
    out
}

#[test]
fn openapi_v3_operations_are_upstreams() {
    let mut own = Operations::new();
    let of_custom = render("stable.example.com", "v1", &[], &custom(), "1.37");
    let of_custom: Value = serde_json::from_slice(&of_custom).unwrap();
    for document in documents().iter().chain([&of_custom]) {
        let schemas = document["components"].get("schemas").cloned();
        check_references(document, &schemas.unwrap_or(json!({})));
        own.extend(operations(document, Edition::V3));
    }
    check(Edition::V3, &own);
}

#[test]
fn openapi_v3_schemas_are_upstreams() {
    let mut own = BTreeMap::new();
    for document in documents() {
        let schemas = document["components"]["schemas"].as_object();
        for (model, schema) in schemas.into_iter().flatten() {
            let mut schema = sorted(schema);
            schema
                .as_object_mut()
                .unwrap()
                .remove("x-kubernetes-group-version-kind");
            own.insert(model.clone(), schema);
        }
    }
    own.retain(|model, _| !model.starts_with("io.k8s.api.metrics."));
    let published: BTreeMap<&str, &str> = SCHEMAS
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .collect();
    let ours: Vec<&str> = own.keys().map(String::as_str).collect();
    assert_eq!(ours, published.keys().copied().collect::<Vec<_>>());
    for (model, schema) in own {
        let text = schema.to_string();
        assert_eq!(
            paths::hash(text.as_bytes()),
            published[model.as_str()],
            "{model}: {text}"
        );
    }
}

/// The same with members in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let all: BTreeMap<String, Value> = members
                .iter()
                .map(|(name, own)| (name.clone(), sorted(own)))
                .collect();
            Value::Object(all.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        _ => value.clone(),
    }
}
