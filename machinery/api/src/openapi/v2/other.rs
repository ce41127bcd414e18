//! Kinds of another server, out of its own v2 document: what stands below one group version, and what that refers to.
//!
//! A document is a stranger's. Members that a v2 document does not have, members of another type and references that lead
//! nowhere are left out, since clients read the documents of all servers as one and would fail as a whole.

use super::protobuf::{self, Section};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Paths and definitions of one group version.
const MAX_MEMBERS: usize = 4_096;
const REFERENCE: &str = "#/definitions/";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// See the module. Members are kept as text, which takes a tenth of the memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OtherDocument {
    paths: BTreeMap<String, String>,
    definitions: BTreeMap<String, String>,
}

impl OtherDocument {
    /// Reads a document of JSON; `None` where it is none, or where it has more members than any group version needs.
    pub fn read(json: &[u8], group: &str, version: &str) -> Option<Self> {
        let mut document: Value = serde_json::from_slice(json).ok()?;
        let mut section = |name: &str| match document.get_mut(name).map(Value::take) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let (paths, mut known) = (section("paths"), section("definitions"));
        let below = format!("/apis/{group}/{version}/");
        let mut own = Self::default();
        let mut open = BTreeSet::new();
        for (path, mut item) in paths.into_iter().filter(|(path, _)| path.starts_with(&below)) {
            clean(Section::Paths, &mut item, &known, &mut open);
            own.paths.insert(path, item.to_string());
        }
        while let Some(name) = open.pop_first() {
            let Some(mut schema) = known.get(&name).cloned() else {
                continue;
            };
            if own.definitions.contains_key(&name) {
                continue;
            }
            clean(Section::Definitions, &mut schema, &known, &mut open);
            keep_kinds(&mut schema, group, version);
            own.definitions.insert(name, schema.to_string());
            if own.definitions.len() > MAX_MEMBERS {
                return None;
            }
        }
        known.clear();
        (own.paths.len() <= MAX_MEMBERS).then_some(own)
    }

    /// Bytes of its members.
    pub fn bytes(&self) -> usize {
        let all = self.paths.iter().chain(&self.definitions);
        all.map(|(name, text)| name.len() + text.len()).sum()
    }

    pub(super) fn defines(&self, name: &str) -> bool {
        self.definitions.contains_key(name)
    }
}

/// Leaves out what has no place, and notes what is referred to.
fn clean(section: Section, value: &mut Value, known: &Map<String, Value>, open: &mut BTreeSet<String>) {
    protobuf::clean(section, value);
    refer(value, &mut |target| {
        let name = target
            .strip_prefix(REFERENCE)
            .filter(|name| known.contains_key(*name))?;
        open.insert(name.to_owned());
        Some(target.to_owned())
    });
}

/// Gives each reference another target; one without a target goes.
fn refer(value: &mut Value, target: &mut impl FnMut(&str) -> Option<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(own)) = members.get("$ref") {
                match target(own) {
                    Some(other) => drop(members.insert("$ref".to_owned(), other.into())),
                    None => drop(members.remove("$ref")),
                }
            }
            members.values_mut().for_each(|member| refer(member, target));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, target)),
        _ => {}
    }
}

/// Clients look kinds up by what definitions say that they are, so a server names those of its own group version alone.
fn keep_kinds(schema: &mut Value, group: &str, version: &str) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    let Some(Value::Array(kinds)) = members.get_mut(KINDS) else {
        members.remove(KINDS);
        return;
    };
    kinds.retain(|kind| kind["group"] == group && kind["version"] == version && kind["kind"].is_string());
    if kinds.is_empty() {
        members.remove(KINDS);
    }
}

/// The definitions of this server that others have as well, and then those of others.
#[derive(Default)]
pub(super) struct Named(HashMap<String, Value>);

impl Named {
    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.0.insert(name, schema);
    }

    /// Hands over the members of a document, its definitions under names that nobody has for something else.
    pub(super) fn add(&mut self, other: &OtherDocument, mut take: impl FnMut(Section, &str, &Value)) {
        let definitions = other.definitions.iter().filter_map(|(name, text)| {
            let schema: Value = serde_json::from_str(text).ok()?;
            Some((name.as_str(), schema))
        });
        let mut renamed: BTreeMap<&str, String> = BTreeMap::new();
        let mut fresh = Vec::new();
        for (name, schema) in definitions {
            match self.0.get(name) {
                Some(known) if *known == schema => {}
                Some(_) => {
                    let mut others = (2..).map(|number| format!("{name}_v{number}"));
                    let free = others.find(|free| !self.0.contains_key(free) && !other.defines(free));
                    let free = free.unwrap_or_default();
                    renamed.insert(name, free.clone());
                    fresh.push((free, schema));
                }
                None => fresh.push((name.to_owned(), schema)),
            }
        }
        let mut target = |target: &str| {
            let name = target.strip_prefix(REFERENCE)?;
            let name = renamed.get(name).map_or(name, String::as_str);
            Some(format!("{REFERENCE}{name}"))
        };
        for (path, text) in &other.paths {
            if let Ok(mut item) = serde_json::from_str(text) {
                refer(&mut item, &mut target);
                take(Section::Paths, path, &item);
            }
        }
        for (name, mut schema) in fresh {
            let original = schema.clone();
            refer(&mut schema, &mut target);
            take(Section::Definitions, &name, &schema);
            self.0.insert(name, original);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        let reference = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
        json!({"swagger": "2.0", "paths": {
            "/apis/boats.example/v1/boats": {"get": {"operationId": "list", "produces": "not a list",
                "responses": {"200": {"description": "OK", "schema": reference("Boat")}}},
                "post": 5, "parameters": [{"in": "body", "name": "body", "schema": reference("nowhere")}, 7]},
            "/apis/apps/v1/deployments": {"get": {"responses": {"200": {"schema": reference("Stolen")}}}},
        }, "definitions": {
            "Boat": {"type": "object", "description": 9, "properties": {"meta": reference("Meta"), "self": reference("Boat"), "odd": 3},
                "x-kubernetes-group-version-kind": [{"group": "boats.example", "version": "v1", "kind": "Boat"}, {"group": "apps", "version": "v1", "kind": "Deployment"}]},
            "Meta": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]},
            "Stolen": {"type": "object"},
        }})
    }

    fn read(document: &Value) -> OtherDocument {
        OtherDocument::read(document.to_string().as_bytes(), "boats.example", "v1").unwrap()
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn other_document_has_its_own_group_version_and_the_shape_of_a_document() {
        let own = read(&document());
        assert_eq!(
            own.paths.keys().collect::<Vec<_>>(),
            ["/apis/boats.example/v1/boats"]
        );
        assert_eq!(
            value(&own.paths["/apis/boats.example/v1/boats"]),
            json!({"get": {"responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Boat"}}}},
                "parameters": [{"in": "body", "name": "body", "schema": {}}]})
        );
        assert_eq!(own.definitions.keys().collect::<Vec<_>>(), ["Boat", "Meta"]);
        assert_eq!(
            value(&own.definitions["Boat"]),
            json!({"type": "object", "properties": {"meta": {"$ref": "#/definitions/Meta"}, "self": {"$ref": "#/definitions/Boat"}},
                "x-kubernetes-group-version-kind": [{"group": "boats.example", "version": "v1", "kind": "Boat"}]})
        );
        assert_eq!(value(&own.definitions["Meta"]), json!({"type": "object"}));
        assert!(OtherDocument::read(b"{", "a", "v1").is_none());
        let nested = format!("{{\"paths\":{}", "[".repeat(100_000));
        assert!(OtherDocument::read(nested.as_bytes(), "a", "v1").is_none());
    }

    #[test]
    fn other_definitions_of_a_name_that_is_taken_have_another() {
        let mut named = Named::default();
        named.insert("Meta".to_owned(), json!({"type": "string"}));
        let other = read(&document());
        let mut taken: BTreeMap<String, Value> = BTreeMap::new();
        for _ in 0..2 {
            named.add(&other, |_, name, value| {
                drop(taken.insert(name.to_owned(), value.clone()))
            });
        }
        assert_eq!(taken["Meta_v2"], json!({"type": "object"}));
        assert_eq!(
            taken["Boat"]["properties"]["meta"],
            json!({"$ref": "#/definitions/Meta_v2"})
        );
        assert!(!taken.contains_key("Meta"));
    }
}
