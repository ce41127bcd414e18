//! Is a schema structural? The rules and words are apiextensions' `ValidateStructural`.

use super::MAX_SCHEMA_DEPTH;
use super::pattern::{Patterns, TOO_LARGE, parse};
use super::problems::{Problems, start};
use crate::tree::{Kind, Ref};
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldPath};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Every reason why a `JSONSchemaProps` is not structural, sorted as upstream sorts them. Its patterns are compiled on the way,
/// and counted with those of the definition's other versions.
pub fn check_structural(schema: Ref<'_>, path: &FieldPath, patterns: &mut Patterns) -> Vec<FieldError> {
    let mut check = Check {
        errors: Problems::default(),
        patterns,
    };
    let path = start(path);
    check.invariants(schema, Level::Root, &path, 0);
    check.junctors_complete(schema, Some(schema), &path, &path);
    let sort = |found: &mut Vec<FieldError>| found.sort_by_cached_key(ToString::to_string);
    check.errors.finish(sort)
}

struct Check<'p> {
    errors: Problems,
    patterns: &'p mut Patterns,
}

impl Check<'_> {
    fn invariants(&mut self, schema: Ref<'_>, level: Level, path: &WalkedPath<'_>, depth: usize) {
        if self.errors.is_full() {
            return;
        }
        if depth > MAX_SCHEMA_DEPTH {
            self.errors
                .forbidden(path, format!("must not nest deeper than {MAX_SCHEMA_DEPTH}"));
            return;
        }
        let flag = |name: &str| schema.get(name).and_then(Ref::as_bool) == Some(true);
        let ty = schema.str("type");
        let items = schema.get("items").filter(|items| items.kind() == Kind::Map);
        // Of a list of schemas the rules of all definitions speak.
        let lists = schema.get("items").is_some_and(|items| !items.is_empty());
        if ty == "array" && items.is_none() && !lists {
            self.errors.required(&path.child("items"), "must be specified");
        }
        if let Some(items) = items {
            self.invariants(items, Level::Item, &path.child("items"), depth + 1);
        }
        for (name, property) in members(schema, "properties") {
            self.invariants(
                property,
                Level::Field,
                &path.child("properties").key(name),
                depth + 1,
            );
        }
        let additional = schema.get("additionalProperties").filter(|own| !own.is_null());
        if let Some(additional) = additional {
            let own_path = path.child("additionalProperties");
            if level == Level::Root {
                self.errors.forbidden(&own_path, "must not be used at the root");
            }
            if additional.kind() == Kind::Map {
                self.invariants(additional, Level::Field, &own_path, depth + 1);
            }
        }
        self.extensions(schema, path);
        let (any, all) = int_or_string_patterns(schema);
        self.value_validation(schema, any, all, path, depth);
        let embedded = flag("x-kubernetes-embedded-resource");
        let untyped_allowed =
            flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
        self.type_of(ty, level, embedded, untyped_allowed, path);
        if embedded && additional.is_some() {
            let problem = "must not be used if x-kubernetes-embedded-resource is set";
            self.errors
                .forbidden(&path.child("additionalProperties"), problem);
        }
        self.metadata(schema, level, embedded, path);
        let preserves = flag("x-kubernetes-preserve-unknown-fields");
        if embedded && !preserves && members(schema, "properties").next().is_none() {
            let problem = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            self.errors.required(&path.child("properties"), problem);
        }
    }

    fn type_of(
        &mut self,
        ty: &str,
        level: Level,
        embedded: bool,
        untyped_allowed: bool,
        path: &WalkedPath<'_>,
    ) {
        let path = path.child("type");
        let must_be_object = "must be object if x-kubernetes-embedded-resource is true";
        if embedded && ty.is_empty() {
            self.errors.required(&path, must_be_object);
        } else if embedded && ty != "object" {
            self.errors.invalid(&path, ty, must_be_object);
        } else if ty.is_empty() && !untyped_allowed {
            let problem = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.errors.required(&path, problem);
        }
        if level == Level::Root && !ty.is_empty() && ty != "object" {
            self.errors.invalid(&path, ty, "must be object at the root");
        }
    }

    fn extensions(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>) {
        let flag = |name: &str| schema.get(name).and_then(Ref::as_bool) == Some(true);
        if !flag("x-kubernetes-int-or-string") {
            return;
        }
        for name in [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
        ] {
            if flag(name) {
                let problem = "must be false if x-kubernetes-int-or-string is true";
                self.errors.invalid(&path.child(name), true, problem);
            }
        }
    }

    fn metadata(&mut self, schema: Ref<'_>, level: Level, embedded: bool, path: &WalkedPath<'_>) {
        let restricted = level == Level::Root || embedded;
        let properties = path.child("properties");
        for name in ["kind", "apiVersion"] {
            if let Some(own) = schema.at(&["properties", name])
                && restricted
                && own.str("type") != "string"
            {
                self.errors.invalid(
                    &properties.key(name).child("type"),
                    own.str("type"),
                    "must be string",
                );
            }
        }
        let Some(metadata) = schema.at(&["properties", "metadata"]) else {
            return;
        };
        let path = properties.key("metadata");
        if restricted && metadata.str("type") != "object" {
            self.errors
                .invalid(&path.child("type"), metadata.str("type"), "must be object");
        }
        let named = members(metadata, "properties").all(|(name, _)| matches!(name, "name" | "generateName"));
        let other = metadata
            .entries()
            .any(|(name, value)| !matches!(name, "type" | "properties" | "default") && !value.is_null());
        if level == Level::Root && (!named || other) {
            let problem = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            self.errors.forbidden(&path, problem);
        }
    }

    fn value_validation(
        &mut self,
        schema: Ref<'_>,
        skip_any: bool,
        skip_first: bool,
        path: &WalkedPath<'_>,
        depth: usize,
    ) {
        let pattern = schema.str("pattern");
        self.pattern(pattern, &path.child("pattern"));
        for junctor in ["anyOf", "allOf", "oneOf"] {
            if junctor == "anyOf" && skip_any {
                continue;
            }
            for (index, own) in schema.list(junctor).enumerate() {
                let skip = junctor == "allOf" && skip_first && index == 0;
                self.nested(own, skip, &path.child(junctor).index(index), depth + 1);
            }
        }
        if let Some(not) = schema.get("not") {
            self.nested(not, false, &path.child("not"), depth + 1);
        }
    }

    fn pattern(&mut self, pattern: &str, path: &WalkedPath<'_>) {
        if let Err(error) = parse(pattern) {
            let problem =
                format!("must be a valid regular expression, but isn't: error parsing regexp: {error}");
            self.errors.invalid(path, pattern, problem);
            return;
        }
        let before = self.patterns.is_over();
        self.patterns.get(pattern);
        if self.patterns.is_over() && !before {
            self.errors.forbidden(path, TOO_LARGE);
        }
    }

    fn nested(&mut self, schema: Ref<'_>, skip_any: bool, path: &WalkedPath<'_>, depth: usize) {
        if self.errors.is_full() {
            return;
        }
        if depth > MAX_SCHEMA_DEPTH {
            self.errors
                .forbidden(path, format!("must not nest deeper than {MAX_SCHEMA_DEPTH}"));
            return;
        }
        self.value_validation(schema, skip_any, false, path, depth);
        if let Some(items) = schema.get("items").filter(|items| items.kind() == Kind::Map) {
            self.nested(items, false, &path.child("items"), depth + 1);
        }
        for (name, own) in members(schema, "properties") {
            self.nested(own, false, &path.child("properties").key(name), depth + 1);
        }
        self.forbidden(schema, path);
        if schema.at(&["properties", "metadata"]).is_some() {
            self.errors.forbidden(
                &path.child("properties").key("metadata"),
                "must not be specified in a nested context",
            );
        }
    }

    /// Rejects fields that a nested value validation must not have.
    fn forbidden(&mut self, schema: Ref<'_>, path: &WalkedPath<'_>) {
        const RULES: [(&str, &str); 13] = [
            ("type", "must be empty to be structural"),
            ("additionalProperties", "must be undefined to be structural"),
            ("default", "must be undefined to be structural"),
            ("title", "must be empty to be structural"),
            ("description", "must be empty to be structural"),
            ("nullable", "must be false to be structural"),
            (
                "x-kubernetes-preserve-unknown-fields",
                "must be false to be structural",
            ),
            ("x-kubernetes-embedded-resource", "must be false to be structural"),
            ("x-kubernetes-int-or-string", "must be false to be structural"),
            ("x-kubernetes-list-map-keys", "must be empty to be structural"),
            ("x-kubernetes-list-type", "must be undefined to be structural"),
            ("x-kubernetes-map-type", "must be undefined to be structural"),
            ("x-kubernetes-validations", "must be empty to be structural"),
        ];
        for (name, problem) in RULES {
            let said = schema.get(name).is_some_and(|own| match own.kind() {
                Kind::Bool => own.as_bool() == Some(true) || name == "additionalProperties",
                Kind::String => own.as_str() != Some(""),
                Kind::List => !own.is_empty(),
                Kind::Null => false,
                _ => true,
            });
            if said {
                self.errors.forbidden(&path.child(name), problem);
            }
        }
    }

    /// Checks that everything that is validated is part of the structure.
    fn junctors_complete(
        &mut self,
        value: Ref<'_>,
        structure: Option<Ref<'_>>,
        path: &WalkedPath<'_>,
        at: &WalkedPath<'_>,
    ) {
        for junctor in ["allOf", "anyOf", "oneOf"] {
            for (index, own) in value.list(junctor).enumerate() {
                self.complete(own, structure, path, &at.child(junctor).index(index));
            }
        }
        if let Some(not) = value.get("not") {
            self.complete(not, structure, path, &at.child("not"));
        }
    }

    fn complete(
        &mut self,
        value: Ref<'_>,
        structure: Option<Ref<'_>>,
        path: &WalkedPath<'_>,
        at: &WalkedPath<'_>,
    ) {
        if self.errors.is_full() {
            return;
        }
        let Some(schema) = structure else {
            self.errors
                .required(path, format!("because it is defined in {at}"));
            return;
        };
        self.junctors_complete(value, structure, path, at);
        if let Some(items) = value.get("items").filter(|items| items.kind() == Kind::Map) {
            let own = schema.get("items").filter(|items| items.kind() == Kind::Map);
            self.complete(items, own, &path.child("items"), &at.child("items"));
        }
        for (name, property) in members(value, "properties") {
            let own = schema.at(&["properties", name]);
            let (path, at) = (path.child("properties"), at.child("properties"));
            self.complete(property, own, &path.key(name), &at.key(name));
        }
    }
}

fn members<'a>(schema: Ref<'a>, name: &str) -> impl Iterator<Item = (&'a str, Ref<'a>)> {
    schema.get(name).into_iter().flat_map(Ref::entries)
}

/// The two ways to spell int-or-string below `anyOf` that are excused.
fn int_or_string_patterns(schema: Ref<'_>) -> (bool, bool) {
    let is_pair = |list: Ref<'_>| {
        let types: Vec<&str> = list.items().map(|item| item.str("type")).collect();
        types == ["integer", "string"] && list.items().all(|item| item.len() == 1)
    };
    let any = schema.get("anyOf").is_some_and(is_pair);
    let first = schema
        .get("allOf")
        .and_then(|all| all.item(0))
        .and_then(|all| all.get("anyOf"));
    (any, first.is_some_and(is_pair))
}
