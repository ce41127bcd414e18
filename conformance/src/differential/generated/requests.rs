//! Requests of a group: changes of fields, malformed options, users with fewer rights.

use anyhow::Result;
use serde_json::{Value, json};

use super::walk::{self, Change, Walked};
use super::{Base, Edit, Probe};
use crate::facts::{Facts, Resource};

/// Users of the groups `rights`, and the group of each beside `system:authenticated`.
const USERS: [(&str, Option<&str>); 4] = [
    ("tenant", None),
    ("viewer", None),
    ("none", None),
    ("system:node:n1", Some("system:nodes")),
];

/// Parameters of a read of the collection: a name, and the query.
const READS: &[(&str, &str)] = &[
    ("limit-negative", "limit=-1"),
    ("limit-text", "limit=x"),
    ("continue-bad", "continue=x"),
    ("continue-with-revision", "continue=x&resourceVersion=1"),
    ("labels-bad", "labelSelector=%21%21"),
    ("labels-value-bad", "labelSelector=a%3D-b"),
    ("fields-unknown", "fieldSelector=spec.none%3D1"),
    ("fields-bad", "fieldSelector=metadata.name"),
    ("revision-text", "resourceVersion=x"),
    ("revision-negative", "resourceVersion=-1"),
    ("match-without-revision", "resourceVersionMatch=Exact"),
    ("match-odd", "resourceVersionMatch=Odd&resourceVersion=1"),
    ("match-of-zero", "resourceVersionMatch=Exact&resourceVersion=0"),
    (
        "match-with-continue",
        "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
    ),
    ("timeout-text", "timeoutSeconds=x"),
    ("initial-events-of-list", "sendInitialEvents=true"),
    ("initial-events-without-match", "watch=1&sendInitialEvents=true"),
    (
        "watch-match",
        "watch=1&resourceVersion=1&resourceVersionMatch=Exact",
    ),
    ("watch-text", "watch=1&resourceVersion=x"),
];

/// Parameters of a create: a name, and the query.
const CREATES: &[(&str, &str)] = &[
    ("dry-run-odd", "dryRun=Odd"),
    ("dry-run-twice", "dryRun=All&dryRun=All"),
    ("validation-odd", "dryRun=All&fieldValidation=Odd"),
    ("manager-bad", "dryRun=All&fieldManager=%01"),
    (
        "manager-long",
        "dryRun=All&fieldManager=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ),
];

/// Options of a delete, sent as its body. Those in a body count instead of the query's: a dry run is one of them.
fn deletes() -> Vec<(&'static str, Value)> {
    vec![
        ("propagation-odd", json!({"propagationPolicy": "Odd"})),
        (
            "propagation-and-orphans",
            json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
        ),
        ("grace-negative", json!({"gracePeriodSeconds": -1})),
        ("grace-text", json!({"gracePeriodSeconds": "x"})),
        (
            "uid-other",
            json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}),
        ),
        (
            "revision-other",
            json!({"preconditions": {"resourceVersion": "1"}}),
        ),
        ("dry-run-odd", json!({"dryRun": ["Odd"]})),
        ("kind-other", json!({"apiVersion": "v1", "kind": "Odd"})),
        ("field-unknown", json!({"odd": 1})),
        ("orphans", json!({"orphanDependents": true})),
        ("foreground", json!({"propagationPolicy": "Foreground"})),
    ]
}

/// Patches that are refused: a name, the type, and the text.
const PATCHES: &[(&str, &str, &str)] = &[
    ("merge-text", "merge", "x"),
    ("merge-list", "merge", "[]"),
    ("merge-kind", "merge", r#"{"kind":"Odd"}"#),
    ("merge-version", "merge", r#"{"apiVersion":"odd/v1"}"#),
    ("merge-name", "merge", r#"{"metadata":{"name":"other"}}"#),
    (
        "merge-namespace",
        "merge",
        r#"{"metadata":{"namespace":"other"}}"#,
    ),
    (
        "merge-uid",
        "merge",
        r#"{"metadata":{"uid":"00000000-0000-0000-0000-000000000000"}}"#,
    ),
    (
        "merge-revision",
        "merge",
        r#"{"metadata":{"resourceVersion":"1"}}"#,
    ),
    ("merge-unknown", "merge", r#"{"odd":1,"metadata":{"odd":1}}"#),
    (
        "merge-labels",
        "merge",
        r#"{"metadata":{"labels":{"-Bad":"-Bad"}}}"#,
    ),
    ("merge-labels-type", "merge", r#"{"metadata":{"labels":1}}"#),
    ("merge-metadata-none", "merge", r#"{"metadata":null}"#),
    ("merge-spec-none", "merge", r#"{"spec":null}"#),
    (
        "strategic-directive",
        "strategic",
        r#"{"metadata":{"$patch":"odd"}}"#,
    ),
    ("strategic-text", "strategic", "x"),
    ("json-object", "json-patch", "{}"),
    (
        "json-operation-odd",
        "json-patch",
        r#"[{"op":"odd","path":"/metadata"}]"#,
    ),
    (
        "json-path-none",
        "json-patch",
        r#"[{"op":"remove","path":"/odd"}]"#,
    ),
    (
        "json-test",
        "json-patch",
        r#"[{"op":"test","path":"/metadata/name","value":"other"}]"#,
    ),
    (
        "json-name",
        "json-patch",
        r#"[{"op":"replace","path":"/metadata/name","value":"other"}]"#,
    ),
    (
        "json-metadata",
        "json-patch",
        r#"[{"op":"remove","path":"/metadata"}]"#,
    ),
    ("type-odd", "text/plain", "{}"),
];

/// Forms that an object is not served in, and some that it is.
const FORMS: &[(&str, &str)] = &[
    ("text", "text/html"),
    ("odd", "application/json;as=Odd;g=meta.k8s.io;v=v1"),
    (
        "table-version-odd",
        "application/json;as=Table;g=meta.k8s.io;v=v2",
    ),
    (
        "list-of-one",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    ),
    (
        "table-or-json",
        "application/json;as=Odd;g=meta.k8s.io;v=v1,application/json",
    ),
];

/// Creates, updates and changes of the status, each with one field changed.
pub(super) fn of_fields(
    facts: &Facts,
    walked: &mut Walked,
    object: &Value,
    resource: &Resource,
) -> Result<Vec<Probe>> {
    let (api_version, kind) = (resource.api_version(), resource.kind.clone());
    let kind = (api_version.as_str(), kind.as_str());
    let creates = walk::creates(facts, walked, kind, object);
    let updates = match resource.has_verb("update") {
        true => walk::updates(facts, walked, kind, object),
        false => Vec::new(),
    };
    let statuses = match resource.has_subresource("status") {
        true => walk::statuses(facts, walked, kind),
        false => Vec::new(),
    };
    let mut probes = vec![changing(
        "create",
        "POST {collection}?dryRun=All",
        Base::Object,
        None,
    )?];
    for change in creates {
        probes.push(changing(
            "create",
            "POST {collection}?dryRun=All",
            Base::Object,
            Some(change),
        )?);
    }
    if !updates.is_empty() || !statuses.is_empty() {
        probes.push(stored()?);
    }
    for change in updates {
        probes.push(changing(
            "update",
            "PUT {item}?dryRun=All",
            Base::Stored,
            Some(change),
        )?);
    }
    for change in statuses {
        let request = "PUT {item}/status?dryRun=All";
        probes.push(changing("status", request, Base::Stored, Some(change))?);
    }
    // The object as it is, and nothing to change in it.
    if probes.len() == 1 {
        probes.clear();
    }
    Ok(probes)
}

/// Requests with malformed parameters, bodies and forms.
pub(super) fn of_options(object: &Value, resource: &Resource) -> Result<Vec<Probe>> {
    let mut probes = Vec::new();
    let kind = json!({"apiVersion": resource.api_version(), "kind": resource.kind});
    if resource.has_verb("list") {
        for (name, query) in READS {
            let step = json!({"request": format!("GET {{collection}}?{query}")});
            probes.push(probe(format!("list {name}"), step)?);
        }
    }
    if resource.has_verb("create") {
        for (name, query) in CREATES {
            let step = json!({"request": format!("POST {{collection}}?{query}"), "body": object});
            probes.push(probe(format!("create {name}"), step)?);
        }
        let mut named = kind.clone();
        named["metadata"] = json!({"name": "{name}"});
        for (name, body) in [
            ("nothing", json!({})),
            ("kind-alone", kind.clone()),
            ("name-alone", named),
        ] {
            let step = json!({"request": "POST {collection}?dryRun=All", "body": body});
            probes.push(probe(format!("create {name}"), step)?);
        }
    }
    if !(resource.has_verb("create") && resource.has_verb("get")) {
        return Ok(probes);
    }
    probes.push(stored()?);
    for (name, accept) in FORMS {
        probes.push(probe(
            format!("get {name}"),
            json!({"request": "GET {item}", "accept": accept}),
        )?);
    }
    if resource.has_verb("update") {
        for (name, path, value) in [
            ("name-other", "metadata.name", Some("other".into())),
            ("namespace-other", "metadata.namespace", Some("other".into())),
            (
                "uid-other",
                "metadata.uid",
                Some("00000000-0000-0000-0000-000000000000".into()),
            ),
            ("revision-other", "metadata.resourceVersion", Some("1".into())),
            ("revision-none", "metadata.resourceVersion", None),
            ("revision-text", "metadata.resourceVersion", Some("x".into())),
            ("generation-other", "metadata.generation", Some(77.into())),
            ("kind-other", "kind", Some("Odd".into())),
            ("version-other", "apiVersion", Some("odd/v1".into())),
            ("kind-none", "kind", None),
        ] {
            let path = path.split('.').map(str::to_owned).collect();
            let change = (name.to_owned(), Edit { path, value });
            probes.push(changing(
                "update",
                "PUT {item}?dryRun=All",
                Base::Stored,
                Some(change),
            )?);
        }
        let step = json!({"request": "PUT {item}?dryRun=All", "body": kind});
        probes.push(probe("update kind-alone".to_owned(), step)?);
    }
    if resource.has_verb("patch") {
        for (name, type_, text) in PATCHES {
            let step = json!({"request": "PATCH {item}?dryRun=All", "type": type_, "text": text});
            probes.push(probe(format!("patch {name}"), step)?);
        }
        let step = json!({"request": "PATCH {item}?dryRun=All", "type": "apply", "body": kind});
        probes.push(probe("patch apply-without-manager".to_owned(), step)?);
        let step = json!({"request": "PATCH {item}?dryRun=All&force=true", "type": "merge", "body": {}});
        probes.push(probe("patch merge-with-force".to_owned(), step)?);
    }
    if resource.has_verb("delete") {
        for (name, mut body) in deletes() {
            if body.get("dryRun").is_none() {
                body["dryRun"] = json!(["All"]);
            }
            let step = json!({"request": "DELETE {item}?dryRun=All", "body": body});
            probes.push(probe(format!("delete {name}"), step)?);
        }
        for query in ["propagationPolicy=Odd", "gracePeriodSeconds=x", "dryRun=Odd"] {
            let step = json!({"request": format!("DELETE {{item}}?dryRun=All&{query}")});
            probes.push(probe(format!("delete {query}"), step)?);
        }
    }
    Ok(probes)
}

/// The same few requests of each user.
pub(super) fn of_rights(resource: &Resource) -> Result<Vec<Probe>> {
    let kind =
        json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {"name": "{name}"}});
    let mut probes = Vec::new();
    for (user, group) in USERS {
        let mut add = |verb: &str, name: &str, step: Value| -> Result<()> {
            if !resource.has_verb(verb) {
                return Ok(());
            }
            let mut step = step;
            step["user"] = user.into();
            if let Some(group) = group {
                step["headers"] = json!({"impersonate-group": group});
            }
            probes.push(probe(format!("{user} {name}"), step)?);
            Ok(())
        };
        add("get", "get", json!({"request": "GET {item}"}))?;
        add(
            "list",
            "list",
            json!({"request": "GET {collection}?fieldSelector=metadata.name%3Dnone"}),
        )?;
        add(
            "create",
            "create",
            json!({"request": "POST {collection}?dryRun=All", "body": kind}),
        )?;
        add(
            "update",
            "update",
            json!({"request": "PUT {item}?dryRun=All", "body": kind}),
        )?;
        add(
            "patch",
            "patch",
            json!({"request": "PATCH {item}?dryRun=All", "type": "merge", "body": {}}),
        )?;
        add("delete", "delete", json!({"request": "DELETE {item}?dryRun=All"}))?;
        if resource.has_subresource("status") {
            let step = json!({"request": "PATCH {item}/status?dryRun=All", "type": "merge", "body": {}});
            add("patch", "patch-status", step)?;
        }
    }
    Ok(probes)
}

/// Creates the object: what follows changes it.
fn stored() -> Result<Probe> {
    let mut probe = changing("store", "POST {collection}", Base::Object, None)?;
    probe.step.compare = false;
    Ok(probe)
}

fn changing(verb: &str, request: &str, base: Base, change: Option<Change>) -> Result<Probe> {
    let (name, edit) = match change {
        Some((name, edit)) => (format!("{verb} {name}"), Some(edit)),
        None => (verb.to_owned(), None),
    };
    let mut probe = probe(name, json!({"request": request}))?;
    (probe.base, probe.edit) = (base, edit);
    Ok(probe)
}

fn probe(name: String, step: Value) -> Result<Probe> {
    Ok(Probe {
        name,
        step: serde_json::from_value(step)?,
        base: Base::None,
        edit: None,
    })
}
