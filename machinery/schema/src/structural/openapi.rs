//! Rules that every custom kind's schema must follow, structural or not.
//!
//! Upstream: `apiextensions/validation/validation.go`, `ValidateCustomResourceDefinitionOpenAPISchema`.

use super::MAX_SCHEMA_DEPTH;
use super::problems::{Problems, start};
use crate::tree::{Kind, Ref};
use machinery_meta::field::Shown;
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldPath};
use std::collections::HashSet;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];
const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";
/// A list is shown with each of its problems until it was shown so often.
const MAX_SHOWN_BYTES: usize = 4 << 20;

/// Violations of these rules in the `JSONSchemaProps` of a whole object.
pub fn check_openapi(schema: Ref<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut check = Check {
        errors: Problems::default(),
    };
    let path = start(path);
    if flag(schema, "nullable") {
        check.forbidden(&path.child("nullable"), "nullable cannot be true at the root");
    }
    let place = SchemaPosition {
        root: true,
        ..SchemaPosition::default()
    };
    check.schema(schema, &path, &place);
    check.errors.finish(|_| {})
}

/// Reports whether some part of a schema names a dialect (`$schema`), which no definition may.
pub fn names_other_schema(schema: Ref<'_>) -> bool {
    names_dialect(schema, 0)
}

fn names_dialect(schema: Ref<'_>, depth: usize) -> bool {
    let below =
        |own: Ref<'_>| depth < MAX_SCHEMA_DEPTH && own.kind() == Kind::Map && names_dialect(own, depth + 1);
    let own = !schema.str("$schema").is_empty();
    let single = ["items", "not", "additionalProperties"]
        .into_iter()
        .filter_map(|name| schema.get(name));
    let listed = ["allOf", "anyOf", "oneOf"]
        .into_iter()
        .flat_map(|name| schema.list(name));
    let named = schema
        .get("properties")
        .into_iter()
        .flat_map(Ref::entries)
        .map(|(_, own)| own);
    own || single.chain(listed).chain(named).any(below)
}

/// Position of a schema in the whole.
#[derive(Clone, Default)]
struct SchemaPosition {
    root: bool,
    /// Below what applies to an object's own kind, version or metadata.
    meta: bool,
    no_defaults: Option<String>,
    depth: usize,
}

impl SchemaPosition {
    fn below(&self) -> Self {
        Self {
            root: false,
            depth: self.depth + 1,
            ..self.clone()
        }
    }
}

struct Check {
    errors: Problems,
}

impl Check {
    fn forbidden(&mut self, path: &WalkedPath<'_>, problem: &str) {
        self.errors.forbidden(path, problem);
    }

    fn required(&mut self, path: &WalkedPath<'_>, problem: &str) {
        self.errors.required(path, problem);
    }

    fn schema(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>, place: &SchemaPosition) {
        if place.depth > MAX_SCHEMA_DEPTH || self.errors.is_full() {
            return; // The check for structural schemas has reported it already.
        }
        self.words(schema, path, place);
        self.members(schema, path, place);
        let below = place.below();
        for junctor in ["allOf", "oneOf", "anyOf"] {
            for (index, own) in schema.list(junctor).enumerate() {
                self.schema(own, &path.child(junctor).index(index), &below);
            }
        }
        for name in ["not", "items"] {
            if let Some(own) = schema.get(name).filter(|own| own.kind() == Kind::Map) {
                self.schema(own, &path.child(name), &below);
            }
        }
        self.containers(schema, path);
        self.list_of_maps(schema, path);
        self.rules(schema, path);
    }

    fn words(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>, place: &SchemaPosition) {
        let ty = schema.str("type");
        if !ty.is_empty() && !TYPES.contains(&ty) {
            self.errors.not_supported(&path.child("type"), ty, &TYPES);
        }
        if let Some(place) = place
            .no_defaults
            .as_ref()
            .filter(|_| is_present(schema, "default"))
        {
            self.forbidden(&path.child("default"), &format!("must not be set {place}"));
        }
        for name in UNSUPPORTED.into_iter().filter(|name| is_present(schema, name)) {
            self.forbidden(&path.child(name), &format!("{name} is not supported"));
        }
        if ty == "null" {
            let problem = "type cannot be set to null, use nullable as an alternative";
            self.forbidden(&path.child("type"), problem);
        }
        if schema
            .get("items")
            .is_some_and(|items| items.kind() == Kind::List && !items.is_empty())
        {
            let problem = "items must be a schema object and not an array";
            self.forbidden(&path.child("items"), problem);
        }
        if place.meta && flag(schema, "x-kubernetes-embedded-resource") {
            let path = path.child("x-kubernetes-embedded-resource");
            self.forbidden(&path, "must not be used inside of resource meta");
        }
        if flag(schema, "uniqueItems") {
            let problem = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(&path.child("uniqueItems"), problem);
        }
        let preserve = "x-kubernetes-preserve-unknown-fields";
        if schema.get(preserve).and_then(Ref::as_bool) == Some(false) {
            self.errors
                .invalid(&path.child(preserve), false, "must be true or undefined");
        }
    }

    fn members(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>, place: &SchemaPosition) {
        let properties = schema.get("properties").filter(|own| !own.is_empty());
        let additional = schema.get("additionalProperties").filter(|own| !own.is_null());
        if let Some(additional) = additional {
            let path = path.child("additionalProperties");
            if properties.is_some() && additional.as_bool() != Some(true) {
                let problem = "additionalProperties and properties are mutual exclusive";
                self.forbidden(&path, problem);
            }
            let mut below = place.below();
            if below.meta {
                below.no_defaults = Some("inside additionalProperties applying to object metadata".into());
            }
            if additional.kind() == Kind::Map {
                self.schema(additional, &path, &below);
            }
        }
        let object = place.root || flag(schema, "x-kubernetes-embedded-resource");
        for (name, property) in properties.into_iter().flat_map(Ref::entries) {
            let mut below = place.below();
            if object && matches!(name, "metadata" | "kind" | "apiVersion") {
                below.meta = true;
                if place.root {
                    below.no_defaults = Some(format!("in top-level {name}"));
                }
            }
            self.schema(property, &path.child("properties").key(name), &below);
        }
    }

    /// Checks the types and keys by which lists and maps are merged.
    fn containers(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>) {
        self.container(schema, path, MAP_TYPE, "object", &["atomic", "granular"]);
        self.container(schema, path, LIST_TYPE, "array", &["atomic", "set", "map"]);
        let items = schema.get("items").filter(|items| items.kind() == Kind::Map);
        let Some(items) = items.filter(|_| schema.str("type") == "array" && schema.str(LIST_TYPE) == "set")
        else {
            return;
        };
        let word = match (items.str("type"), items.str(LIST_TYPE), items.str(MAP_TYPE)) {
            ("array", "" | "atomic", _) | ("object", _, "atomic") => return,
            ("array", ..) => LIST_TYPE,
            ("object", ..) => MAP_TYPE,
            _ => return,
        };
        let shown = items
            .get(LIST_TYPE)
            .map_or_else(|| "null".to_owned(), Ref::to_json);
        self.errors.invalid(
            &path.child("items").child(word),
            Shown(shown),
            "must be atomic as item of a list with x-kubernetes-list-type=set",
        );
    }

    fn container(
        &mut self,
        schema: Ref<'_>,
        path: &WalkedPath<'_>,
        word: &str,
        wanted: &str,
        known: &[&str],
    ) {
        let Some(said) = schema.get(word).and_then(Ref::as_str) else {
            return;
        };
        let problem = format!("must be {wanted} if {word} is specified");
        match schema.str("type") {
            "" => self.required(&path.child("type"), &problem),
            ty if ty == wanted => {}
            ty => self.errors.invalid(&path.child("type"), ty, problem),
        }
        if !known.contains(&said) {
            self.errors.not_supported(&path.child(word), said, known);
        }
    }

    /// Lists whose items have keys, and the keys.
    fn list_of_maps(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>) {
        let list_type = schema.str(LIST_TYPE);
        let keys: Vec<&str> = schema.list(LIST_MAP_KEYS).filter_map(Ref::as_str).collect();
        let at_type = path.child(LIST_TYPE);
        let must_be_map = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            "" if !keys.is_empty() => self.required(&at_type, must_be_map),
            "" | "map" => {}
            other if !keys.is_empty() => {
                self.errors.invalid(&at_type, other, must_be_map);
            }
            _ => {}
        }
        let items = schema.get("items").filter(|items| !items.is_null());
        if list_type == "map" {
            if keys.is_empty() {
                let problem = "must not be empty if x-kubernetes-list-type is map";
                self.required(&path.child(LIST_MAP_KEYS), problem);
            }
            match items {
                Some(items) if items.str("type") == "object" => self.keys(&keys, items, path),
                Some(items) => self.errors.invalid(
                    &path.child("items").child("type"),
                    items.str("type"),
                    "must be object if parent array's x-kubernetes-list-type is map",
                ),
                None => {
                    let problem = "must have a schema if x-kubernetes-list-type is map";
                    self.required(&path.child("items"), problem);
                }
            }
        }
        let nullable = items.is_some_and(|items| flag(items, "nullable"));
        if matches!(list_type, "set" | "map") && nullable {
            let problem = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.forbidden(&path.child("items").child("nullable"), &problem);
        }
    }

    fn keys(&mut self, keys: &[&str], items: Ref<'_>, path: &WalkedPath<'_>) {
        let at = path.child(LIST_MAP_KEYS);
        let listed = serde_json::to_string(keys).unwrap_or_default();
        let mut shown_bytes = 0;
        // Each such problem shows all keys.
        let mut wrong = |errors: &mut Problems, problem: &str| {
            if shown_bytes <= MAX_SHOWN_BYTES {
                shown_bytes += listed.len();
                errors.invalid(&at, Shown(listed.clone()), problem);
            }
        };
        let required: HashSet<&str> = items.list("required").filter_map(Ref::as_str).collect();
        let mut seen = HashSet::new();
        for key in keys {
            let items_path = path.child("items");
            let properties = items_path.child("properties");
            let own_path = properties.key(key);
            if !seen.insert(key) {
                wrong(&mut self.errors, "must not contain duplicate entries");
            }
            let Some(property) = items.at(&["properties", key]) else {
                wrong(&mut self.errors, "entries must all be names of item properties");
                continue;
            };
            if matches!(property.str("type"), "array" | "object") {
                self.errors.invalid(
                    &own_path.child("type"),
                    items.str("type"),
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                );
            }
            if !required.contains(key) && !is_present(property, "default") {
                let problem = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                self.required(&own_path.child("default"), problem);
            }
            if flag(property, "nullable") {
                let problem = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(&own_path.child("nullable"), problem);
            }
        }
    }

    /// The form of rules in CEL, not what they say.
    fn rules(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>) {
        for (index, rule) in schema.list("x-kubernetes-validations").enumerate() {
            let rules = path.child("x-kubernetes-validations");
            let path = rules.index(index);
            let (text, message) = (rule.str("rule").trim(), rule.str("message"));
            let broken = |text: &str| text.contains(['\n', '\r']);
            if text.is_empty() {
                self.required(&path.child("rule"), "rule is not specified");
            } else if !message.is_empty() && message.trim().is_empty() {
                self.invalid(&path, "message", message, "must be non-empty if specified");
            } else if broken(message.trim()) {
                self.invalid(&path, "message", message, "must not contain line breaks");
            } else if broken(text) && message.trim().is_empty() {
                let problem = "message must be specified if rule contains line breaks";
                self.required(&path.child("message"), problem);
            }
            let expression = rule.str("messageExpression");
            if !expression.is_empty() && expression.trim().is_empty() {
                let problem = "messageExpression must be non-empty if specified";
                self.required(&path.child("messageExpression"), problem);
            }
            let reason = rule.str("reason");
            if !reason.is_empty() && !REASONS.contains(&reason) {
                self.errors.not_supported(&path.child("reason"), reason, &REASONS);
            }
            let field = rule.str("fieldPath");
            if !field.is_empty() && field.trim().is_empty() {
                self.invalid(&path, "fieldPath", field, "must be non-empty if specified");
            }
            if broken(field) {
                self.invalid(&path, "fieldPath", field, "must not contain line breaks");
            }
        }
    }

    fn invalid(&mut self, path: &WalkedPath<'_>, name: &str, value: &str, problem: &str) {
        self.errors.invalid(&path.child(name), value, problem);
    }
}

fn flag(schema: Ref<'_>, name: &str) -> bool {
    schema.get(name).and_then(Ref::as_bool) == Some(true)
}

fn is_present(schema: Ref<'_>, name: &str) -> bool {
    schema.get(name).is_some_and(|own| match own.kind() {
        Kind::Null => false,
        Kind::String => own.as_str() != Some("") || name == "$ref",
        Kind::Map if name == "patternProperties" || name == "definitions" => !own.is_empty(),
        _ => true,
    })
}
