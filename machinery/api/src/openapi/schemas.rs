//! `components.schemas`: the types a document's kinds need, in upstream's form.

use super::Edition;
use super::paths::operations::Models;
use super::paths::root::INFO;
use machinery_schema::{Extra, Field, ListType, MapType, Schema, Shape, TypeId};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) struct Schemas<'w> {
    schema: &'static Schema,
    words: &'w Map<String, Value>,
    /// The model name of each named type.
    models: Models,
    types: HashMap<String, TypeId>,
    kinds: HashMap<TypeId, Vec<Value>>,
    done: BTreeMap<String, Value>,
    open: Vec<TypeId>,
}

/// Kinds that belong to the version of every group, besides the core's.
const EVERYWHERE: [&str; 2] = ["DeleteOptions", "WatchEvent"];
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

impl<'w> Schemas<'w> {
    /// Schemas of a document about these versions of groups.
    pub(super) fn new(words: &'w Map<String, Value>, group_versions: &[(&str, &str)]) -> Self {
        let schema: &'static Schema = crate::schema();
        let mut models = HashMap::new();
        let mut types = HashMap::new();
        for (name, id) in schema.names().filter(|(name, _)| name.contains('.')) {
            models.insert(id, model_name(name));
            types.insert(model_name(name), id);
        }
        Self {
            schema,
            words,
            models,
            types,
            kinds: kinds(schema, group_versions),
            done: BTreeMap::new(),
            open: Vec::new(),
        }
    }

    /// Names of models by their types.
    pub(super) fn models(&self) -> &Models {
        &self.models
    }

    /// Adds a built-in model that an operation refers to.
    pub(super) fn need(&mut self, model: &str) {
        self.open.extend(self.types.get(model));
        // These two are no types of the table.
        let schema = match model {
            PATCH => json!({
                "description": "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.",
                "type": "object",
            }),
            INFO => self.info(),
            _ => return,
        };
        self.done.insert(model.to_owned(), schema);
    }

    fn info(&self) -> Value {
        let words = self.words.get(INFO);
        let mut properties = Map::new();
        for (names, default) in [(VERSION, Some("")), (VERSION_OPTIONAL, None)] {
            for name in names {
                let mut own = json!({"type": "string"});
                let words = words.and_then(|own| own.get(1)).and_then(|own| own.get(name));
                if let Some(words) = words {
                    own["description"] = words.clone();
                }
                if let Some(default) = default {
                    own["default"] = json!(default);
                }
                properties.insert((*name).to_owned(), own);
            }
        }
        let words = words.and_then(|own| own.get(0)).cloned().unwrap_or_default();
        json!({"description": words, "type": "object", "required": VERSION, "properties": properties})
    }

    /// Adds a built-in type by its name in the facts, and gives the reference to it.
    pub(super) fn add_named(&mut self, name: &str) -> Value {
        let id = self.schema.type_named(name);
        self.open.extend(id);
        Edition::V3.reference(&model_name(name))
    }

    /// Adds a schema made elsewhere.
    pub(super) fn add_custom(&mut self, model: String, schema: Value) {
        self.done.insert(model, schema);
    }

    /// Renders what was added and all it refers to, one at a time: most callers keep none of them.
    pub(super) fn each(mut self, mut take: impl FnMut(String, Value)) {
        let mut seen: HashSet<String> = HashSet::new();
        for (model, schema) in std::mem::take(&mut self.done) {
            seen.insert(model.clone());
            take(model, schema);
        }
        while let Some(id) = self.open.pop() {
            let Some(model) = self.models.get(&id).cloned() else {
                continue;
            };
            if seen.insert(model.clone()) {
                let rendered = self.model(id, &model);
                take(model, rendered);
            }
        }
    }

    fn model(&mut self, id: TypeId, model: &str) -> Value {
        let mut out = Map::new();
        let words = self.words.get(model).cloned().unwrap_or_default();
        if let Some(text) = words.get(0).filter(|text| text.is_string()) {
            out.insert("description".to_owned(), text.clone());
        }
        let ty = self.schema.ty(id);
        if ty.shape == Shape::Struct {
            self.members(id, &words, &mut out);
        } else if !model.ends_with(".apiextensions.v1.JSON") {
            // A default or a value of an enum may be anything.
            out.extend(special(ty.shape));
        }
        if ty.map_type == MapType::Atomic {
            out.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        if let Some(kinds) = self.kinds.get(&id) {
            out.insert(
                "x-kubernetes-group-version-kind".to_owned(),
                Value::Array(kinds.clone()),
            );
        }
        Value::Object(out)
    }

    fn members(&mut self, id: TypeId, words: &Value, out: &mut Map<String, Value>) {
        let schema = self.schema;
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in schema.fields(id) {
            let name = schema.text(field.name);
            let text = words
                .get(1)
                .and_then(|fields| fields.get(name))
                .filter(|text| text.is_string());
            properties.insert(name.to_owned(), self.property(field, text));
            if field.required {
                required.push(json!(name));
            }
        }
        out.insert("type".to_owned(), json!("object"));
        if !properties.is_empty() {
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
    }

    fn property(&mut self, field: &Field, text: Option<&Value>) -> Value {
        let mut out = match self.type_of(field.ty) {
            Value::Object(own) => own,
            _ => Map::new(),
        };
        if let Some(text) = text {
            out.insert("description".to_owned(), text.clone());
        }
        if let Some(default) = self.schema.default_of(field)
            && let Ok(default) = serde_json::from_str::<Value>(default)
        {
            out.insert("default".to_owned(), default);
        }
        if let Some(extra) = self.schema.extra(field) {
            self.extensions(extra, &mut out);
        }
        // Readers of v3 take no notice of what stands beside a reference.
        if out.len() > 1
            && let Some(target) = out.remove("$ref")
        {
            out.insert("allOf".to_owned(), json!([{"$ref": target}]));
        }
        Value::Object(out)
    }

    fn extensions(&self, extra: &Extra, out: &mut Map<String, Value>) {
        let text = |text| self.schema.text(text);
        let mut set = |name: &str, value: Value| out.insert(name.to_owned(), value);
        match extra.list_type {
            ListType::Atomic => drop(set("x-kubernetes-list-type", json!("atomic"))),
            ListType::Set => drop(set("x-kubernetes-list-type", json!("set"))),
            ListType::Map => drop(set("x-kubernetes-list-type", json!("map"))),
            ListType::Unset => {}
        }
        if !extra.map_keys.is_empty() {
            let keys: Vec<&str> = extra.map_keys.iter().map(|key| text(*key)).collect();
            set("x-kubernetes-list-map-keys", json!(keys));
        }
        match extra.map_type {
            MapType::Atomic => drop(set("x-kubernetes-map-type", json!("atomic"))),
            MapType::Granular => drop(set("x-kubernetes-map-type", json!("granular"))),
            MapType::Unset => {}
        }
        let strategies = [
            (extra.patch_merge, "merge"),
            (extra.patch_replace, "replace"),
            (extra.patch_retain_keys, "retainKeys"),
        ];
        let strategies: Vec<&str> = strategies
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| *name)
            .collect();
        if !strategies.is_empty() {
            set("x-kubernetes-patch-strategy", json!(strategies.join(",")));
        }
        if !extra.patch_merge_key.is_empty() {
            set("x-kubernetes-patch-merge-key", json!(text(extra.patch_merge_key)));
        }
        if !extra.enum_values.is_empty() {
            let values: Vec<&str> = extra.enum_values.iter().map(|value| text(*value)).collect();
            // Those of a list or a map are its items'.
            match ["items", "additionalProperties"]
                .iter()
                .find(|own| out.contains_key(**own))
            {
                Some(items) => out[*items]["enum"] = json!(values),
                None => drop(out.insert("enum".to_owned(), json!(values))),
            }
        }
        if !extra.format.is_empty() {
            out.insert("format".to_owned(), json!(text(extra.format)));
        }
    }

    fn type_of(&mut self, id: TypeId) -> Value {
        let schema = self.schema;
        let ty = schema.ty(id);
        match ty.shape {
            Shape::List => json!({"type": "array", "items": self.type_of(ty.item)}),
            Shape::Map => json!({"type": "object", "additionalProperties": self.type_of(ty.item)}),
            Shape::Bool => json!({"type": "boolean"}),
            Shape::Int32 | Shape::Uint32 => json!({"type": "integer", "format": "int32"}),
            Shape::Int64 | Shape::Uint64 => json!({"type": "integer", "format": "int64"}),
            Shape::Float => json!({"type": "number", "format": "double"}),
            Shape::Str => json!({"type": "string"}),
            Shape::Bytes => json!({"type": "string", "format": "byte"}),
            shape => match self.models.get(&id) {
                Some(model) => {
                    self.open.push(id);
                    Edition::V3.reference(model)
                }
                None => Value::Object(special(shape)),
            },
        }
    }
}

/// Members of the answer of `/version`.
const VERSION: &[&str] = &[
    "major",
    "minor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];
const VERSION_OPTIONAL: &[&str] = &[
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
];

/// Groups, versions and kinds of the types that are whole objects.
fn kinds(schema: &Schema, group_versions: &[(&str, &str)]) -> HashMap<TypeId, Vec<Value>> {
    let mut kinds: HashMap<TypeId, Vec<Value>> = HashMap::new();
    let mut sorted: Vec<_> = crate::table().all_types().collect();
    sorted.sort();
    for (key, id) in sorted {
        kinds.entry(id).or_default().push(group_version_kind(key));
    }
    for kind in EVERYWHERE {
        let Some(id) = schema.type_named(&format!("meta.v1.{kind}")) else {
            continue;
        };
        let mut others: Vec<_> = group_versions
            .iter()
            .filter(|(group, _)| !group.is_empty())
            .collect();
        others.sort();
        let own = others
            .into_iter()
            .map(|(group, version)| json!({"group": group, "version": version, "kind": kind}));
        kinds.entry(id).or_default().extend(own);
    }
    kinds
}

/// Types with a JSON form of their own.
fn special(shape: Shape) -> Map<String, Value> {
    let schema = match shape {
        Shape::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Duration => json!({"type": "string"}),
        Shape::Raw => json!({"type": "object"}),
        _ => json!({}),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// `apps/v1/Deployment` → `{"group": "apps", "version": "v1", "kind": "Deployment"}`
fn group_version_kind(key: &str) -> Value {
    let mut parts = key.rsplitn(3, '/');
    let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    json!({"group": parts.next().unwrap_or_default(), "version": version, "kind": kind})
}

/// The name upstream publishes a type under: `core.v1.Pod` → `io.k8s.api.core.v1.Pod`.
pub(super) fn model_name(name: &str) -> String {
    let machinery = "io.k8s.apimachinery.pkg";
    match name {
        "machinery.Quantity" => format!("{machinery}.api.resource.Quantity"),
        "machinery.IntOrString" => format!("{machinery}.util.intstr.IntOrString"),
        "machinery.RawExtension" => format!("{machinery}.runtime.RawExtension"),
        _ if name.starts_with("meta.") => format!("{machinery}.apis.{name}"),
        _ if name.starts_with("apiextensions.") => format!("io.k8s.apiextensions-apiserver.pkg.apis.{name}"),
        _ if name.starts_with("apiregistration.") => format!("io.k8s.kube-aggregator.pkg.apis.{name}"),
        _ => format!("io.k8s.api.{name}"),
    }
}
