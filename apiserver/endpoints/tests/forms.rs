//! Every verb in every form: for each row that stores objects, the answers of get, list, watch, create, update, patch and
//! delete as JSON, YAML and protobuf, whole, as a Table and as metadata alone, say the same.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_registry::{ResourceRow, Verb};
use common::{Answer, Api, sample};
use http::Method;
use machinery_runtime::Simulation;
use machinery_schema::protobuf::open_envelope;
use machinery_schema::{Strictness, decode_json, decode_protobuf, yaml_to_json};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const FORMATS: [&str; 3] = [JSON, "application/yaml", "application/vnd.kubernetes.protobuf"];
const PROTOBUF: &str = FORMATS[2];

/// A view, as `as` in `Accept`, and whether it can be of one object, of a list, and in protobuf.
struct View {
    name: &'static str,
    of_object: bool,
    of_list: bool,
    protobuf: bool,
}

const VIEWS: [View; 4] = [
    View {
        name: "",
        of_object: true,
        of_list: true,
        protobuf: true,
    },
    View {
        name: "Table",
        of_object: true,
        of_list: true,
        protobuf: false,
    },
    View {
        name: "PartialObjectMetadata",
        of_object: true,
        of_list: false,
        protobuf: true,
    },
    View {
        name: "PartialObjectMetadataList",
        of_object: false,
        of_list: true,
        protobuf: true,
    },
];

fn accept(format: &str, view: &str) -> String {
    match view {
        "" => format.to_owned(),
        view => format!("{format};as={view};g=meta.k8s.io;v=v1"),
    }
}

fn type_of(
    api_version: &str,
    kind: &str,
) -> Option<(
    &'static std::sync::Arc<machinery_schema::Schema>,
    machinery_schema::TypeId,
)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    machinery_api::schema_for(group, version, kind)
}

/// A document in its schema's own order, so that absent, null and empty are written alike in all formats.
fn normal(json: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(json).map_err(|error| format!("{error}: {json}"))?;
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let Some((schema, ty)) = type_of(&text("apiVersion"), &text("kind")).filter(|_| text("kind") != "Table")
    else {
        return Ok(value);
    };
    let decoded =
        decode_json(schema, ty, json.as_bytes(), Strictness::Ignore).map_err(|error| error.to_string())?;
    serde_json::from_str(&decoded.tree.root().to_json()).map_err(|error| error.to_string())
}

fn from_protobuf(bytes: &[u8]) -> Result<Value, String> {
    let envelope = open_envelope(bytes).map_err(|error| error.to_string())?;
    let (schema, ty) = type_of(envelope.api_version, envelope.kind)
        .ok_or_else(|| format!("{} {}", envelope.api_version, envelope.kind))?;
    let tree = decode_protobuf(schema, ty, bytes).map_err(|error| error.to_string())?;
    normal(&tree.root().to_json())
}

fn decoded(format: &str, bytes: &[u8]) -> Result<Value, String> {
    match format {
        PROTOBUF => from_protobuf(bytes),
        JSON => normal(&String::from_utf8_lossy(bytes)),
        _ => normal(&yaml_to_json(bytes).map_err(|error| error.to_string())?),
    }
}

/// The fields of one protobuf message that hold bytes.
fn fields(mut message: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some((tag, rest)) = message.split_first() {
        let (mut length, mut shift, mut at) = (0_usize, 0, 0);
        loop {
            let byte = rest[at];
            length |= usize::from(byte & 0x7f) << shift;
            (shift, at) = (shift + 7, at + 1);
            if byte < 0x80 {
                break;
            }
        }
        found.push((tag >> 3, &rest[at..at + length]));
        message = &rest[at + length..];
    }
    found
}

/// The events of a watch: their types and objects.
fn events(format: &str, mut body: &[u8]) -> Result<Vec<(String, Value)>, String> {
    let mut all = Vec::new();
    if format == JSON {
        for line in String::from_utf8_lossy(body).lines() {
            let event: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
            all.push((
                event["type"].as_str().unwrap().to_owned(),
                normal(&event["object"].to_string())?,
            ));
        }
        return Ok(all);
    }
    while let Some((length, rest)) = body.split_at_checked(4) {
        let length = usize::try_from(u32::from_be_bytes(length.try_into().unwrap())).unwrap();
        let event = fields(&rest[..length]);
        let kind = String::from_utf8_lossy(event[0].1).into_owned();
        all.push((kind, from_protobuf(fields(event[1].1)[0].1)?));
        body = &rest[length..];
    }
    Ok(all)
}

/// Removes the members in which two answers to the same request may differ.
fn mask(value: &mut Value) {
    if value["kind"] == "PartialObjectMetadataList" {
        // Protobuf has no type of each item.
        for item in value["items"].as_array_mut().into_iter().flatten() {
            let members = item.as_object_mut().unwrap();
            members.retain(|name, _| name == "metadata");
        }
    }
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !matches!(name.as_str(), "uid" | "managedFields"));
            members.values_mut().for_each(mask);
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}

struct Forms<'a> {
    api: &'a Api,
    row: &'a ResourceRow,
    collection: String,
    object: String,
    wrong: Vec<String>,
}

/// A request whose answer is looked at in every form.
struct Ask {
    what: &'static str,
    method: Method,
    path: String,
    content: &'static str,
    body: String,
    list: bool,
}

impl Forms<'_> {
    async fn send(&self, ask: &Ask, accept: &str) -> Answer {
        let forms = (ask.content, accept);
        self.api
            .ask(ask.method.clone(), &ask.path, forms, ask.body.clone())
            .await
    }

    async fn check(&mut self, ask: &Ask) {
        for view in &VIEWS {
            let plain = self.send(ask, &accept(JSON, view.name)).await;
            let fits = if ask.list { view.of_list } else { view.of_object };
            // A Status is what it is in every view.
            let status = String::from_utf8_lossy(&plain.body).contains("\"kind\":\"Status\"");
            if !(fits || status && plain.code < 300) {
                self.hold(plain.code == 406, || {
                    format!("{} as {}: {}", ask.what, view.name, plain.code)
                });
                continue;
            }
            let expected = decoded(JSON, &plain.body);
            self.hold(plain.code < 300, || {
                format!("{} as {}: {expected:?}", ask.what, view.name)
            });
            for format in FORMATS {
                self.compare(ask, view, format, &expected).await;
            }
        }
    }

    async fn compare(&mut self, ask: &Ask, view: &View, format: &str, expected: &Result<Value, String>) {
        let answer = self.send(ask, &accept(format, view.name)).await;
        let place = format!("{} as {format} {}", ask.what, view.name);
        if format == PROTOBUF && !view.protobuf {
            self.hold(answer.code == 406, || format!("{place}: {}", answer.code));
            return;
        }
        let found = decoded(format, &answer.body).map(|mut found| {
            mask(&mut found);
            found
        });
        let expected = expected.clone().map(|mut expected| {
            mask(&mut expected);
            expected
        });
        self.hold(found == expected, || {
            format!("{place}:\n  {found:?}\n  {expected:?}")
        });
        if let Ok(found) = &found
            && view.name.starts_with("Partial")
            && found["kind"] != "Status"
        {
            self.hold(found["kind"] == view.name, || format!("{place}: {found}"));
        }
    }

    async fn check_watch(&mut self) {
        let path = format!(
            "{}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true",
            self.collection
        );
        let ask = |accept: String| {
            let (api, path) = (self.api, path.clone());
            async move { api.ask(Method::GET, &path, (JSON, &accept), "").await }
        };
        let mut wrong = Vec::new();
        for view in ["", "PartialObjectMetadata"] {
            let plain = ask(accept(JSON, view)).await;
            let expected = events(JSON, &plain.body);
            let found = events(PROTOBUF, &ask(accept(PROTOBUF, view)).await.body);
            if found != expected || expected.as_ref().is_ok_and(Vec::is_empty) {
                wrong.push(format!("watch as protobuf {view}:\n  {found:?}\n  {expected:?}"));
            }
            let kinds = expected
                .into_iter()
                .flatten()
                .map(|(_, object)| object["kind"].clone());
            let kind = if view.is_empty() { &self.row.gvk.kind } else { view };
            wrong.extend(
                kinds
                    .filter(|own| own != kind)
                    .map(|own| format!("watch as {view}: {own}")),
            );
        }
        for (format, view) in [
            (PROTOBUF, "Table"),
            ("application/yaml", ""),
            (JSON, "PartialObjectMetadataList"),
        ] {
            let code = ask(accept(format, view)).await.code;
            if code != 406 {
                wrong.push(format!("watch as {format} {view}: {code}"));
            }
        }
        self.wrong.extend(wrong);
    }

    fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }

    async fn tell(&mut self, yaml: &str) {
        let made = self
            .api
            .ask(
                Method::POST,
                &self.collection,
                ("application/yaml", JSON),
                yaml.to_owned(),
            )
            .await;
        let made = match made.json(201) {
            Ok(made) => made,
            Err(error) => return self.wrong.push(error),
        };
        let name = made["metadata"]["name"].as_str().unwrap();
        self.object = format!("{}/{name}", self.collection);
        let dry = |path: &str| format!("{path}?dryRun=All");
        let again = {
            let mut again = made.clone();
            again["metadata"] = json!({"name": made["metadata"]["name"]});
            again
        };
        let ask = |what, method, path: String, content, body: &Value, list| Ask {
            what,
            method,
            path,
            content,
            body: if body.is_null() {
                String::new()
            } else {
                body.to_string()
            },
            list,
        };
        let note = json!({"metadata": {"annotations": {"forms": "yes"}}});
        let object = self.object.clone();
        let mut all = vec![
            ask("get", Method::GET, object.clone(), JSON, &Value::Null, false),
            ask(
                "list",
                Method::GET,
                self.collection.clone(),
                JSON,
                &Value::Null,
                true,
            ),
            ask("patch", Method::PATCH, dry(&object), MERGE, &note, false),
            ask("update", Method::PUT, dry(&object), JSON, &made, false),
            ask("delete", Method::DELETE, dry(&object), JSON, &Value::Null, false),
        ];
        if self.row.verbs.has(Verb::DeleteCollection) {
            all.push(ask(
                "deletecollection",
                Method::DELETE,
                dry(&self.collection),
                JSON,
                &Value::Null,
                true,
            ));
        }
        for one in &all {
            self.check(one).await;
        }
        self.check_watch().await;
        let gone = self
            .api
            .ask(
                Method::DELETE,
                &format!("{object}?gracePeriodSeconds=0"),
                (JSON, JSON),
                "",
            )
            .await;
        if gone.code == 200 && self.api.ask(Method::GET, &object, (JSON, JSON), "").await.code == 404 {
            let create = ask("create", Method::POST, dry(&self.collection), JSON, &again, false);
            self.check(&create).await;
        }
    }
}

#[test]
fn forms_of_every_row_and_verb_say_the_same() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    let wrong: Vec<String> = simulation.run(async move {
        let api = Api::new(runtime).await;
        let range = json!({"metadata": {"name": "range"}, "spec": {"cidrs": ["10.96.0.0/24"]}});
        let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
        api.ask(Method::POST, cidrs, (JSON, JSON), range.to_string())
            .await
            .json(201)
            .unwrap();
        let mut wrong = Vec::new();
        for row in api.registry.rows().all().filter(|row| row.has_store) {
            let mut forms = Forms {
                api: &api,
                row,
                collection: common::collection(row),
                object: String::new(),
                wrong: Vec::new(),
            };
            match sample(row) {
                Ok(yaml) => forms.tell(&yaml).await,
                Err(missing) => forms.wrong.push(missing),
            }
            let kind = format!("{} {}", row.gvk.api_version(), row.gvk.kind);
            wrong.extend(forms.wrong.into_iter().map(|what| format!("{kind}: {what}")));
        }
        wrong
    });
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
