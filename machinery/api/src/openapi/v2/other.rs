//! Kinds of another server, out of its own v2 document: what stands below one group version, and what that refers to.
//!
//! The document is another server's. Members that a v2 document does not have, members of another type and references that lead
//! nowhere are left out, since clients read the documents of all servers as one and would fail as a whole.

use super::protobuf::{self, Section};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Paths and definitions of one group version.
const MAX_MEMBERS: usize = 4_096;
/// Maps and items of a document: in memory each takes many times its bytes.
const MAX_MAPS: usize = 100_000;
const MAX_ITEMS: usize = 500_000;
const REFERENCE: &str = "#/definitions/";
const PARAMETER: &str = "#/parameters/";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// See the module. Members are kept as text, which takes a tenth of the memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OtherDocument {
    paths: BTreeMap<String, String>,
    definitions: BTreeMap<String, String>,
    /// Parameters that its paths refer to.
    parameters: BTreeMap<String, String>,
}

impl OtherDocument {
    /// Reads a document of JSON; `None` where it is none, or where it has more members than any group version needs.
    pub fn read(json: &[u8], group: &str, version: &str) -> Option<Self> {
        let count = |of: u8| json.iter().filter(|byte| **byte == of).count();
        if count(b'{') > MAX_MAPS || count(b',') > MAX_ITEMS {
            return None;
        }
        let mut document: Value = serde_json::from_slice(json).ok()?;
        let mut section = |name: &str| match document.get_mut(name).map(Value::take) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        };
        let (paths, mut left) = (section("paths"), section("definitions"));
        let mut parameters = section("parameters");
        let mut known = Known {
            definitions: left.keys().cloned().collect(),
            parameters: parameters.keys().cloned().collect(),
            open: BTreeSet::new(),
            open_parameters: BTreeSet::new(),
        };
        let below = format!("/apis/{group}/{version}/");
        let mut own = Self::default();
        for (path, mut item) in paths.into_iter().filter(|(path, _)| path.starts_with(&below)) {
            known.clean(Section::Paths, &mut item);
            own.paths.insert(path, item.to_string());
        }
        for name in std::mem::take(&mut known.open_parameters) {
            if let Some(mut parameter) = parameters.remove(&name) {
                known.clean(Section::Parameters, &mut parameter);
                own.parameters.insert(name, parameter.to_string());
            }
        }
        while let Some(name) = known.open.pop_first() {
            // Each is read once.
            let Some(mut schema) = left.remove(&name) else {
                continue;
            };
            known.clean(Section::Definitions, &mut schema);
            keep_kinds(&mut schema, group, version);
            own.definitions.insert(name, schema.to_string());
            if own.definitions.len() > MAX_MEMBERS {
                return None;
            }
        }
        let fits = own.paths.len().max(own.parameters.len()) <= MAX_MEMBERS;
        fits.then_some(own)
    }

    /// Bytes of its members.
    pub fn bytes(&self) -> usize {
        let all = self.paths.iter().chain(&self.definitions).chain(&self.parameters);
        all.map(|(name, text)| name.len() + text.len()).sum()
    }

    pub(super) fn defines(&self, name: &str) -> bool {
        self.definitions.contains_key(name)
    }
}

/// Names that a document has, and those that were referred to.
struct Known {
    definitions: HashSet<String>,
    parameters: HashSet<String>,
    open: BTreeSet<String>,
    open_parameters: BTreeSet<String>,
}

impl Known {
    /// Leaves out what has no place, and notes what is referred to.
    fn clean(&mut self, section: Section, value: &mut Value) {
        if section == Section::Paths {
            self.drop_unknown_parameters(value);
        }
        protobuf::clean(section, value);
        refer(value, &mut |target| {
            let (name, known, open) = match target.strip_prefix(PARAMETER) {
                Some(name) => (name, &self.parameters, &mut self.open_parameters),
                None => (target.strip_prefix(REFERENCE)?, &self.definitions, &mut self.open),
            };
            let name = known.get(name)?;
            open.insert(name.clone());
            Some(target.to_owned())
        });
    }

    /// A parameter without its reference would be none.
    fn drop_unknown_parameters(&self, item: &mut Value) {
        let Some(members) = item.as_object_mut() else {
            return;
        };
        for (name, own) in members {
            let list = if name == "parameters" {
                Some(own)
            } else {
                own.get_mut("parameters")
            };
            if let Some(Value::Array(all)) = list {
                all.retain(|own| own.get("$ref").is_none_or(|target| self.has_parameter(target)));
            }
        }
    }

    fn has_parameter(&self, target: &Value) -> bool {
        let name = target.as_str().and_then(|target| target.strip_prefix(PARAMETER));
        name.is_some_and(|name| self.parameters.contains(name))
    }
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

fn without_kinds(mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.remove(KINDS);
    }
    schema
}

/// The definitions of this server that others have as well, and then those of others; compared without the kinds that they are,
/// since each server names its own groups there. The parameters that operations refer to likewise.
#[derive(Default)]
pub(super) struct Named {
    definitions: HashMap<String, Value>,
    parameters: HashMap<String, Value>,
}

impl Named {
    pub(super) fn insert(&mut self, name: String, schema: Value) {
        self.definitions.insert(name, without_kinds(schema));
    }

    pub(super) fn insert_parameter(&mut self, name: String, parameter: Value) {
        self.parameters.insert(name, parameter);
    }

    /// Hands over the members of a document, its definitions and parameters under names that no other has.
    pub(super) fn add(&mut self, other: &OtherDocument, mut take: impl FnMut(Section, &str, &Value)) {
        let definitions = Fresh::of(&other.definitions, &self.definitions, without_kinds);
        let to_definition = |target: &str| {
            let name = target.strip_prefix(REFERENCE)?;
            Some(format!("{REFERENCE}{}", definitions.name(name)))
        };
        // What a parameter refers to is part of it.
        let parameters = Fresh::of(&other.parameters, &self.parameters, |mut own| {
            refer(&mut own, &mut { to_definition });
            own
        });
        let mut target = |target: &str| match target.strip_prefix(PARAMETER) {
            Some(name) => Some(format!("{PARAMETER}{}", parameters.name(name))),
            None => to_definition(target),
        };
        for (path, text) in &other.paths {
            if let Ok(mut item) = serde_json::from_str(text) {
                refer(&mut item, &mut target);
                take(Section::Paths, path, &item);
            }
        }
        for (section, fresh) in [
            (Section::Definitions, &definitions.fresh),
            (Section::Parameters, &parameters.fresh),
        ] {
            for (name, own) in fresh {
                let mut own = own.clone();
                refer(&mut own, &mut target);
                take(section, name, &own);
            }
        }
        for (name, parameter) in &parameters.fresh {
            let mut parameter = parameter.clone();
            refer(&mut parameter, &mut { to_definition });
            self.parameters.insert(name.clone(), parameter);
        }
        for (name, schema) in definitions.fresh {
            self.insert(name, schema);
        }
    }
}

/// Members of a document that are not known yet.
struct Fresh<'a> {
    fresh: Vec<(String, Value)>,
    /// Names of members that another member of that name differs from.
    renamed: BTreeMap<&'a str, String>,
}

impl<'a> Fresh<'a> {
    fn of(
        members: &'a BTreeMap<String, String>,
        known: &HashMap<String, Value>,
        compared: impl Fn(Value) -> Value,
    ) -> Self {
        let mut out = Self {
            fresh: Vec::new(),
            renamed: BTreeMap::new(),
        };
        for (name, text) in members {
            let Ok(own) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            let form = compared(own.clone());
            let is_free = |name: &str| known.get(name).is_none_or(|known| *known == form);
            let mut published = name.clone();
            if !is_free(name) {
                let mut others = (2..).map(|number| format!("{name}_v{number}"));
                let free = others.find(|free| is_free(free) && !members.contains_key(free));
                published = free.unwrap_or_default();
                out.renamed.insert(name, published.clone());
            }
            if !known.contains_key(&published) {
                out.fresh.push((published, own));
            }
        }
        out
    }

    fn name<'n>(&'n self, name: &'n str) -> &'n str {
        self.renamed.get(name).map_or(name, String::as_str)
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
                "post": 5, "parameters": [{"in": "body", "name": "body", "schema": reference("nowhere")},
                7, {"$ref": "#/parameters/limit"}, {"$ref": "#/parameters/nowhere"}]},
            "/apis/apps/v1/deployments": {"get": {"responses": {"200": {"schema": reference("Stolen")}}}},
        }, "definitions": {
            "Boat": {"type": "object", "description": 9, "properties": {"meta": reference("Meta"), "self": reference("Boat"), "odd": 3},
                "x-kubernetes-group-version-kind": [{"group": "boats.example", "version": "v1", "kind": "Boat"}, {"group": "apps", "version": "v1", "kind": "Deployment"}]},
            "Meta": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]},
            "Stolen": {"type": "object"},
        }, "parameters": {
            "limit": {"in": "query", "name": "limit", "type": "integer", "odd": 3},
            "unused": {"in": "query", "name": "unused", "type": "integer"},
        }})
    }

    fn read(document: &Value) -> OtherDocument {
        OtherDocument::read(document.to_string().as_bytes(), "boats.example", "v1").unwrap()
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let reference = |random: &mut machinery_fuzz::Random| {
            format!(r##"{{"$ref":"#/definitions/d{}"}}"##, random.below(300))
        };
        let mut paths = Vec::new();
        for at in 0..random.count() {
            let root = random.pick(&["/apis/boats.example/v1/", "/apis/apps/v1/", ""]);
            let schema = reference(random);
            paths.push(format!(
                r#""{root}p{at}":{{"get":{{"responses":{{"200":{{"schema":{schema}}}}}}}}}"#
            ));
        }
        let mut definitions = Vec::new();
        for at in 0..random.count().min(300) {
            let properties: Vec<String> = (0..random.below(20))
                .map(|own| format!(r#""p{own}":{}"#, reference(random)))
                .collect();
            definitions.push(format!(
                r#""d{at}":{{"properties":{{{}}},"description":"{}"}}"#,
                properties.join(","),
                "x".repeat(random.count())
            ));
        }
        format!(
            r#"{{"paths":{{{}}},"definitions":{{{}}}}}"#,
            paths.join(","),
            definitions.join(",")
        )
        .into_bytes()
    }

    #[test]
    fn other_document_of_any_bytes_is_read() {
        machinery_fuzz::fuzz_built([document().to_string()], built, |input| {
            let read = || OtherDocument::read(input, "boats.example", "v1");
            if let Some(own) = machinery_fuzz::in_proportion(input, 256, read) {
                assert!(own.paths.len() <= MAX_MEMBERS && own.definitions.len() <= MAX_MEMBERS);
            }
        });
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
            json!({"get": {"operationId": "list", "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Boat"}}}},
                "parameters": [{"in": "body", "name": "body", "schema": {}}, {"$ref": "#/parameters/limit"}]})
        );
        assert_eq!(own.definitions.keys().collect::<Vec<_>>(), ["Boat", "Meta"]);
        assert_eq!(
            value(&own.definitions["Boat"]),
            json!({"type": "object", "properties": {"meta": {"$ref": "#/definitions/Meta"}, "self": {"$ref": "#/definitions/Boat"}},
                "x-kubernetes-group-version-kind": [{"group": "boats.example", "version": "v1", "kind": "Boat"}]})
        );
        assert_eq!(value(&own.definitions["Meta"]), json!({"type": "object"}));
        let limit = json!({"in": "query", "name": "limit", "type": "integer"});
        assert_eq!(
            own.parameters,
            BTreeMap::from([("limit".to_owned(), limit.to_string())])
        );
        assert!(OtherDocument::read(b"{", "a", "v1").is_none());
        let nested = format!("{{\"paths\":{}", "[".repeat(100_000));
        assert!(OtherDocument::read(nested.as_bytes(), "a", "v1").is_none());
    }

    #[test]
    fn other_definitions_of_a_name_that_is_taken_have_another() {
        let mut named = Named::default();
        named.insert("Meta".to_owned(), json!({"type": "string"}));
        named.insert_parameter(
            "limit".to_owned(),
            json!({"in": "query", "name": "limit", "type": "string"}),
        );
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
        assert_eq!(taken["limit_v2"]["type"], "integer");
        let boats = &taken["/apis/boats.example/v1/boats"];
        assert_eq!(boats["parameters"][1], json!({"$ref": "#/parameters/limit_v2"}));
    }
}
