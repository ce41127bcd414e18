//! From a `JSONSchemaProps` to types and constraints.

use super::check::check_structural;
use super::format;
use super::pattern::{Patterns, TOO_LARGE};
use super::{Constraints, MAX_SCHEMA_DEPTH, MAX_SCHEMA_TYPES, ValidationRule};
use crate::Tree;
use crate::table::{FieldSpec, ListType, MapType, Schema, SchemaBuilder, Shape, TypeId};
use crate::tree::{Kind, Ref};
use machinery_meta::{FieldError, FieldPath};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A custom kind's schema, ready for the engines.
#[derive(Debug, Clone)]
pub struct CompiledSchema {
    pub schema: Arc<Schema>,
    /// The type of an object.
    pub ty: TypeId,
}

/// Compiles the schema of one version of a custom kind. `object_meta` is `meta/v1` `ObjectMeta` in the table.
///
/// A kind without a schema (`None`, only possible in old objects) keeps everything. The versions of a definition share their
/// patterns.
pub fn compile(
    root: Option<Ref<'_>>,
    object_meta: (&Schema, TypeId),
    path: &FieldPath,
    patterns: &mut Patterns,
) -> Result<CompiledSchema, Vec<FieldError>> {
    let errors = root.map(|root| check_structural(root, path, patterns));
    if let Some(errors) = errors.filter(|errors| !errors.is_empty()) {
        return Err(errors);
    }
    let mut compiler = Compiler::new(patterns);
    compiler.object_meta = compiler.builder.import(object_meta.0, object_meta.1);
    let compiled = match root {
        Some(root) => compiler.object(root, true, 0),
        None => Ok(compiler.anything()),
    };
    let refused = |problem: String| vec![FieldError::forbidden(path, problem)];
    let ty = compiled.map_err(refused)?;
    let schema = compiler
        .builder
        .finish()
        .map_err(|error| refused(error.to_string()))?;
    Ok(CompiledSchema {
        schema: Arc::new(schema),
        ty,
    })
}

/// Compiles one value's schema by itself; what it embeds may have any metadata.
pub(super) fn compile_value(schema: Ref<'_>) -> Result<CompiledSchema, String> {
    let mut patterns = Patterns::default();
    let mut compiler = Compiler::new(&mut patterns);
    let ty = compiler.value(schema, 0)?;
    if compiler.patterns.is_over() {
        return Err(TOO_LARGE.to_owned());
    }
    let schema = compiler.builder.finish().map_err(|error| error.to_string())?;
    Ok(CompiledSchema {
        schema: Arc::new(schema),
        ty,
    })
}

struct Compiler<'p> {
    builder: SchemaBuilder,
    object_meta: TypeId,
    count: usize,
    patterns: &'p mut Patterns,
}

impl<'p> Compiler<'p> {
    fn new(patterns: &'p mut Patterns) -> Self {
        Self {
            builder: SchemaBuilder::new(),
            object_meta: TypeId::ANY,
            count: 0,
            patterns,
        }
    }

    fn anything(&mut self) -> TypeId {
        let id = self.builder.declare_anonymous("object");
        let fields = self.type_meta(BTreeMap::new());
        self.builder.define_struct(id, fields, &[]);
        let ty = self.builder.type_mut(id);
        (ty.typed, ty.preserve_unknown, ty.embedded) = (false, true, true);
        id
    }

    fn value(&mut self, schema: Ref<'_>, depth: usize) -> Result<TypeId, String> {
        self.count += 1;
        if self.count > MAX_SCHEMA_TYPES {
            return Err(format!("must not have more than {MAX_SCHEMA_TYPES} schemas"));
        }
        if depth > MAX_SCHEMA_DEPTH {
            return Err(format!("must not nest deeper than {MAX_SCHEMA_DEPTH}"));
        }
        let flag = |name: &str| schema.get(name).and_then(Ref::as_bool) == Some(true);
        let id = match schema.str("type") {
            "object" => return self.object(schema, false, depth),
            "" if schema.get("properties").is_some() => return self.object(schema, false, depth),
            "array" => {
                let item = match schema.get("items").filter(|items| items.kind() == Kind::Map) {
                    Some(items) => self.value(items, depth + 1)?,
                    None => TypeId::ANY,
                };
                self.builder.own(Shape::List, item, "array")
            }
            "string" => self.builder.own(Shape::Str, TypeId::ANY, "string"),
            "integer" => self.builder.own(Shape::Int64, TypeId::ANY, "integer"),
            "number" => self.builder.own(Shape::Float, TypeId::ANY, "number"),
            "boolean" => self.builder.own(Shape::Bool, TypeId::ANY, "boolean"),
            _ if flag("x-kubernetes-int-or-string") => {
                self.builder.own(Shape::IntOrString, TypeId::ANY, "int-or-string")
            }
            _ => self.builder.own(Shape::Any, TypeId::ANY, "any"),
        };
        self.describe(id, schema);
        Ok(id)
    }

    fn object(&mut self, schema: Ref<'_>, root: bool, depth: usize) -> Result<TypeId, String> {
        let flag = |name: &str| schema.get(name).and_then(Ref::as_bool) == Some(true);
        let embedded = root || flag("x-kubernetes-embedded-resource");
        let additional = schema
            .get("additionalProperties")
            .filter(|own| own.as_bool() != Some(false));
        let properties = schema.get("properties").filter(|own| !own.is_empty());
        if let Some(additional) = additional.filter(|own| !own.is_null())
            && properties.is_none()
        {
            let item = if additional.kind() == Kind::Map {
                self.value(additional, depth + 1)?
            } else {
                self.leaf()
            };
            let id = self.builder.own(Shape::Map, item, "object");
            self.describe(id, schema);
            return Ok(id);
        }
        let required: HashSet<&str> = schema.list("required").filter_map(Ref::as_str).collect();
        let mut fields = BTreeMap::new();
        for (name, property) in properties.into_iter().flat_map(Ref::entries) {
            if embedded && matches!(name, "metadata" | "apiVersion" | "kind") {
                continue;
            }
            let ty = self.value(property, depth + 1)?;
            let mut field = field(name, ty, property);
            field.required = required.contains(name);
            fields.insert(name.to_owned(), field);
        }
        let fields = if embedded {
            self.type_meta(fields)
        } else {
            fields.into_values().collect()
        };
        let id = self.builder.declare_anonymous("object");
        self.builder.define_struct(id, fields, &[]);
        self.describe(id, schema);
        self.builder.type_mut(id).embedded = embedded;
        Ok(id)
    }

    /// Values below `additionalProperties: true`, which have no schema: objects there lose their members.
    fn leaf(&mut self) -> TypeId {
        let id = self.builder.own(Shape::Str, TypeId::ANY, "any");
        let ty = self.builder.type_mut(id);
        (ty.typed, ty.nullable) = (false, true);
        id
    }

    /// Adds the members every object has.
    fn type_meta(&mut self, mut fields: BTreeMap<String, FieldSpec>) -> Vec<FieldSpec> {
        let string = self.builder.own(Shape::Str, TypeId::ANY, "string");
        self.builder.type_mut(string).typed = false;
        for (name, ty) in [
            ("apiVersion", string),
            ("kind", string),
            ("metadata", self.object_meta),
        ] {
            fields.insert(name.to_owned(), FieldSpec::optional(name, ty));
        }
        fields.into_values().collect()
    }

    fn describe(&mut self, id: TypeId, schema: Ref<'_>) {
        let constraints = constraints(schema, true, self.patterns);
        let map_type = constraints.map_type;
        let nullable = constraints.nullable;
        let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
        let ty = self.builder.type_mut(id);
        (ty.typed, ty.nullable, ty.map_type) = (false, nullable, map_type);
        ty.preserve_unknown = preserve.and_then(Ref::as_bool) == Some(true);
        self.builder.constrain(id, constraints);
    }
}

fn field(name: &str, ty: TypeId, property: Ref<'_>) -> FieldSpec {
    FieldSpec {
        name: name.to_owned(),
        ty,
        omitempty: true,
        list_type: list_type(property),
        map_type: map_type(property),
        map_keys: strings(property, "x-kubernetes-list-map-keys"),
        default: property.get("default").map(text_of_json).unwrap_or_default(),
        enum_values: property.list("enum").map(text_of_json).collect(),
        format: property.str("format").to_owned(),
        ..FieldSpec::default()
    }
}

/// Constraints of a schema on a value; the parts of a structural schema's own members and items are types instead.
fn constraints(schema: Ref<'_>, structural: bool, patterns: &mut Patterns) -> Constraints {
    let flag = |name: &str| schema.get(name).and_then(Ref::as_bool) == Some(true);
    let whole = |name: &str| schema.get(name).and_then(Ref::as_i64);
    let number = |name: &str| schema.get(name).and_then(Ref::as_f64);
    let mut nested = |name: &str| {
        let all = schema.list(name);
        all.map(|own| constraints(own, false, patterns))
            .collect::<Vec<_>>()
    };
    let (all_of, any_of, one_of) = (nested("allOf"), nested("anyOf"), nested("oneOf"));
    let properties = schema.get("properties").into_iter().flat_map(Ref::entries);
    let kept = properties.filter(|(name, _)| !structural || *name == "metadata");
    Constraints {
        types: types(schema.str("type"), flag("x-kubernetes-int-or-string")),
        nullable: flag("nullable"),
        format: format::of_type(schema.str("type"), schema.str("format")).to_owned(),
        max_length: whole("maxLength"),
        min_length: whole("minLength"),
        pattern: patterns.get(schema.str("pattern")),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_items: whole("maxItems"),
        min_items: whole("minItems"),
        max_properties: whole("maxProperties"),
        min_properties: whole("minProperties"),
        required: strings(schema, "required"),
        enum_values: schema
            .list("enum")
            .filter_map(|own| Tree::from_json(&text_of_json(own)).ok())
            .collect(),
        list_type: list_type(schema),
        list_map_keys: strings(schema, "x-kubernetes-list-map-keys"),
        map_type: map_type(schema),
        all_of,
        any_of,
        one_of,
        not: schema
            .get("not")
            .filter(|own| !own.is_null())
            .map(|own| Box::new(constraints(own, false, patterns))),
        properties: kept
            .map(|(name, own)| (name.to_owned(), constraints(own, false, patterns)))
            .collect(),
        items: schema
            .get("items")
            .filter(|own| !structural && own.kind() == Kind::Map)
            .map(|own| Box::new(constraints(own, false, patterns))),
        validations: schema.list("x-kubernetes-validations").map(rule).collect(),
    }
}

fn rule(rule: Ref<'_>) -> ValidationRule {
    ValidationRule {
        rule: rule.str("rule").to_owned(),
        message: rule.str("message").to_owned(),
        message_expression: rule.str("messageExpression").to_owned(),
        reason: rule.str("reason").to_owned(),
        field_path: rule.str("fieldPath").to_owned(),
        optional_old_self: rule.get("optionalOldSelf").and_then(Ref::as_bool) == Some(true),
    }
}

fn types(name: &str, int_or_string: bool) -> Vec<&'static str> {
    const NAMES: [&str; 6] = ["object", "array", "string", "integer", "number", "boolean"];
    if int_or_string {
        return vec!["integer", "string"];
    }
    NAMES.into_iter().filter(|own| *own == name).collect()
}

fn list_type(schema: Ref<'_>) -> ListType {
    match schema.str("x-kubernetes-list-type") {
        "atomic" => ListType::Atomic,
        "set" => ListType::Set,
        "map" => ListType::Map,
        _ => ListType::Unset,
    }
}

fn map_type(schema: Ref<'_>) -> MapType {
    match schema.str("x-kubernetes-map-type") {
        "atomic" => MapType::Atomic,
        "granular" => MapType::Granular,
        _ => MapType::Unset,
    }
}

fn strings(schema: Ref<'_>, name: &str) -> Vec<String> {
    schema
        .list(name)
        .filter_map(Ref::as_str)
        .map(str::to_owned)
        .collect()
}

/// Opaque JSON as it stands, other values as JSON.
pub(super) fn text_of_json(value: Ref<'_>) -> String {
    value.as_raw().map_or_else(|| value.to_json(), str::to_owned)
}
