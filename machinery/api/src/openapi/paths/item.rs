//! Path items: routes of one path as JSON of an edition.

use super::names::id_and_tag;
use super::{Body, Content, Parameter, Place, Route};
use crate::openapi::Edition;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The items of all paths of these routes, by path.
pub(in crate::openapi) fn items(
    routes: Vec<Route<'_>>,
    parameters: &mut Parameters,
) -> BTreeMap<String, Value> {
    let mut by_path: BTreeMap<String, Vec<Route<'_>>> = BTreeMap::new();
    for route in routes {
        by_path.entry(route.path.clone()).or_default().push(route);
    }
    by_path
        .into_iter()
        .map(|(path, routes)| (path, item(routes, parameters)))
        .collect()
}

/// Parameters that each of its operations takes are the path's own.
fn item(mut routes: Vec<Route<'_>>, parameters: &mut Parameters) -> Value {
    for route in &mut routes {
        route.parameters.sort_by_key(|own| (own.name, own.place));
    }
    let is_shared = |own: &Parameter<'_>| {
        routes
            .iter()
            .all(|route| route.parameters.iter().any(|other| own.is_like(other)))
    };
    let shared: Vec<Parameter<'_>> = routes[0]
        .parameters
        .iter()
        .filter(|own| is_shared(own))
        .cloned()
        .collect();
    let mut out = Map::new();
    for mut route in routes {
        route
            .parameters
            .retain(|own| !shared.iter().any(|other| own.is_like(other)));
        out.insert(route.method.to_owned(), operation(&route, parameters));
    }
    if !shared.is_empty() {
        let all: Vec<Value> = shared.iter().map(|own| parameters.parameter(own)).collect();
        out.insert("parameters".to_owned(), Value::Array(all));
    }
    Value::Object(out)
}

fn operation(route: &Route<'_>, parameters: &mut Parameters) -> Value {
    let mut out = head(route);
    match (parameters.edition, &route.body) {
        (Edition::V2, _) => {
            out.insert("schemes".to_owned(), json!(["https"]));
            for (name, forms) in [("consumes", route.consumes), ("produces", &route.produces)] {
                if !forms.is_empty() {
                    out.insert(name.to_owned(), json!(forms));
                }
            }
        }
        (Edition::V3, Some(body)) => {
            out.insert("requestBody".to_owned(), request_body(body, route.consumes));
        }
        (Edition::V3, None) => {}
    }
    let own = own_parameters(route, parameters);
    if !own.is_empty() {
        out.insert("parameters".to_owned(), Value::Array(own));
    }
    out.insert("responses".to_owned(), responses(route, parameters.edition));
    Value::Object(out)
}

/// Members that both editions have.
fn head(route: &Route<'_>) -> Map<String, Value> {
    let (id, tag) = id_and_tag(&route.operation, &route.path);
    let mut out = Map::new();
    let mut set = |name: &str, value: Value| drop(out.insert(name.to_owned(), value));
    set("description", json!(route.description));
    set("operationId", json!(id));
    set("tags", json!([tag]));
    if let Some(about) = &route.about {
        let [group, version, kind] = about.kind;
        let kind = json!({"group": group, "version": version, "kind": kind});
        set("x-kubernetes-action", json!(about.action));
        set("x-kubernetes-group-version-kind", kind);
    }
    out
}

/// Parameters by name; in v2 the body is one of them.
fn own_parameters(route: &Route<'_>, parameters: &mut Parameters) -> Vec<Value> {
    let all = route.parameters.iter();
    let mut own: Vec<(&str, Value)> = all.map(|own| (own.name, parameters.parameter(own))).collect();
    if let Some(body) = route.body.as_ref().filter(|_| parameters.edition == Edition::V2) {
        let at = own.partition_point(|(name, _)| *name < "body");
        own.insert(at, ("body", parameters.body(body)));
    }
    own.into_iter().map(|(_, value)| value).collect()
}

fn request_body(body: &Body, forms: &[&str]) -> Value {
    let mut out = json!({"content": content(&body.content, forms)});
    if body.required {
        out["required"] = Value::Bool(true);
    }
    out
}

fn content(content: &Content, forms: &[&str]) -> Value {
    let schema = schema(content, Edition::V3);
    let all = forms
        .iter()
        .map(|form| ((*form).to_owned(), json!({"schema": schema})));
    Value::Object(all.collect())
}

fn schema(content: &Content, edition: Edition) -> Value {
    match content {
        Content::Text => json!({"type": "string"}),
        Content::Model(name) => edition.reference(name),
    }
}

fn responses(route: &Route<'_>, edition: Edition) -> Value {
    let mut out = Map::new();
    for (code, phrase) in route.codes {
        let answer = match edition {
            Edition::V2 => json!({"description": phrase, "schema": schema(&route.answer, edition)}),
            Edition::V3 => json!({"description": phrase, "content": content(&route.answer, &route.produces)}),
        };
        out.insert((*code).to_owned(), answer);
    }
    out.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    Value::Object(out)
}

impl Parameter<'_> {
    fn is_like(&self, other: &Parameter<'_>) -> bool {
        (self.name, self.place) == (other.name, other.place)
    }

    fn place_name(&self) -> &'static str {
        match self.place {
            Place::Path => "path",
            Place::Query => "query",
        }
    }
}

/// Writer of parameters. Of v2 it keeps those that many operations take, which refer to them.
#[derive(Debug)]
pub(in crate::openapi) struct Parameters {
    edition: Edition,
    shared: BTreeMap<String, Value>,
}

/// Query parameters that stand in every operation: kubectl of older releases looks for them there.
const UNSHARED: [&str; 2] = ["dryRun", "fieldValidation"];
const MACHINERY: &str = "#/definitions/io.k8s.apimachinery";

impl Parameters {
    pub(in crate::openapi) fn new(edition: Edition) -> Self {
        Self {
            edition,
            shared: BTreeMap::new(),
        }
    }

    /// The shared ones, by name.
    pub(in crate::openapi) fn into_shared(self) -> BTreeMap<String, Value> {
        self.shared
    }

    fn parameter(&mut self, own: &Parameter<'_>) -> Value {
        let (name, place, words) = (own.name, own.place_name(), own.words.as_ref());
        if self.edition == Edition::V3 {
            let mut out = json!({"name": name, "in": place, "schema": {"type": own.ty, "uniqueItems": true}});
            if !words.is_empty() {
                out["description"] = json!(words);
            }
            if own.place == Place::Path {
                out["required"] = Value::Bool(true);
            }
            return out;
        }
        let mut members = vec![("uniqueItems", json!(true)), ("type", json!(own.ty))];
        if !words.is_empty() {
            members.push(("description", json!(words)));
        }
        members.extend([("name", json!(name)), ("in", json!(place))]);
        if own.place == Place::Path {
            members.push(("required", json!(true)));
        }
        let is_own = name == "name" || (own.place == Place::Query && UNSHARED.contains(&name));
        self.v2(name, members, !is_own)
    }

    /// The body as the parameter that v2 has for it.
    fn body(&mut self, body: &Body) -> Value {
        let schema = schema(&body.content, self.edition);
        let is_shared = schema["$ref"]
            .as_str()
            .is_some_and(|own| own.starts_with(MACHINERY));
        let mut members = vec![("name", json!("body")), ("in", json!("body"))];
        if body.required {
            members.push(("required", json!(true)));
        }
        members.push(("schema", schema));
        self.v2("body", members, is_shared)
    }

    /// Members in the order that upstream hashes them in.
    fn v2(&mut self, name: &str, members: Vec<(&str, Value)>, shared: bool) -> Value {
        let text = shared.then(|| text(&members));
        let value: Map<String, Value> = members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let value = Value::Object(value);
        let Some(text) = text else { return value };
        let key = format!("{name}-{}", hash(text.as_bytes()));
        let kept = self.shared.entry(key.clone()).or_insert_with(|| value.clone());
        // Two that have one hash are not shared.
        if *kept != value {
            return value;
        }
        json!({"$ref": format!("#/parameters/{key}")})
    }
}

/// JSON as Go's package writes it.
pub(in crate::openapi) fn text(members: &[(&str, Value)]) -> String {
    let all: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    let mut out = format!("{{{}}}", all.join(","));
    for (plain, escaped) in GO_ESCAPES {
        if out.contains(plain) {
            out = out.replace(plain, escaped);
        }
    }
    out
}

/// Characters that Go's package escapes beyond those that JSON must.
const GO_ESCAPES: [(char, &str); 5] = [
    ('<', "\\u003c"),
    ('>', "\\u003e"),
    ('&', "\\u0026"),
    ('\u{2028}', "\\u2028"),
    ('\u{2029}', "\\u2029"),
];

/// The first six bytes of FNV-1 as base64 of the alphabet for addresses: the names of shared parameters are upstream's.
pub(in crate::openapi) fn hash(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let step = |hash: u64, byte: &u8| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let digit = |at: u32| usize::try_from(hash >> (58 - 6 * at) & 63).unwrap_or_default();
    (0..8).map(|at| char::from(ALPHABET[digit(at)])).collect()
}
