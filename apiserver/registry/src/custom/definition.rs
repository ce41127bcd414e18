//! A definition as rows: one per served version.

use super::columns::columns;
use super::json_path::JsonPath;
use super::strategy::SchemaStrategy;
use crate::engine::conversion::Conversion;
use crate::engine::row::{
    OpenApiSchema, ResourceRow, ScalePaths, StoredForm, Subresource, SubresourceRole, record_fingerprint,
    storage_version_hash,
};
use crate::engine::rows::version_priority;
use crate::engine::selectable::Selectable;
use crate::engine::verbs::{Verb, Verbs};
use crate::engine::version_webhook::{ConversionCalls, StorageVersion, VersionWebhook};
use machinery_cel::Rules;
use machinery_meta::{FieldPath, GroupVersionKind};
use machinery_schema::leaf::go_quote;
use machinery_schema::structural::{self, CompiledSchema, Patterns};
use machinery_schema::{Ref, Schema, Strictness, Tree, TypeId, apply_defaults, decode_json, encode_json};
use std::collections::HashSet;
use std::sync::Arc;

/// All that the rows of a definition are made of.
pub(super) fn form(definition: &Tree) -> String {
    let text = |path: &[&str]| definition.at(path).map(Ref::to_json).unwrap_or_default();
    text(&["spec"]) + &text(&["status", "acceptedNames"])
}

/// The prefix of a definition's objects in storage.
pub(super) fn prefix(definition: &Tree) -> String {
    let spec = |path: &[&str]| definition.get("spec").map_or("", |spec| spec.str_at(path));
    stored_prefix(spec(&["group"]), spec(&["names", "plural"]))
}

fn stored_prefix(group: &str, plural: &str) -> String {
    format!("/registry/{group}/{plural}/")
}

/// The rows of a definition whose names are accepted; none when it cannot be served.
pub(super) fn rows(definition: &Tree, calls: Option<&Arc<dyn ConversionCalls>>) -> Vec<ResourceRow> {
    let Some(spec) = definition.get("spec") else {
        return Vec::new();
    };
    let versions: Vec<Ref<'_>> = spec.list("versions").collect();
    let flag = |version: &Ref<'_>, name: &str| version.get(name).and_then(Ref::as_bool) == Some(true);
    let Some(stored) = versions.iter().find(|version| flag(version, "storage")) else {
        return Vec::new();
    };
    let mut patterns = Patterns::default();
    let Some(stored_schema) = compiled(*stored, &mut patterns) else {
        return Vec::new();
    };
    let webhook = webhook(definition, spec, *stored, &stored_schema, calls).map(Arc::new);
    let served = versions.iter().filter(|version| flag(version, "served"));
    served
        .filter_map(|version| {
            let schema = if version.str("name") == stored.str("name") {
                stored_schema.clone()
            } else {
                compiled(*version, &mut patterns)?
            };
            let mut row = row(
                definition,
                spec,
                *version,
                stored.str("name"),
                schema,
                &stored_schema,
            );
            if let Some(webhook) = &webhook {
                convert_by_webhook(&mut row, webhook, *version);
            }
            Some(row)
        })
        .collect()
}

/// The webhook of a definition that has several versions and one.
fn webhook(
    definition: &Tree,
    spec: Ref<'_>,
    stored: Ref<'_>,
    schema: &CompiledSchema,
    calls: Option<&Arc<dyn ConversionCalls>>,
) -> Option<VersionWebhook> {
    let conversion = spec.get("conversion")?;
    if conversion.str("strategy") != "Webhook" || spec.list("versions").len() < 2 {
        return None;
    }
    let names = definition.at(&["status", "acceptedNames"]).unwrap_or(spec);
    let gvk = GroupVersionKind::new(spec.str("group"), stored.str("name"), names.str("kind"));
    let selectable = version_selectable(stored);
    let storage = StorageVersion {
        fingerprint: version_fingerprint(&schema.schema, &selectable, &gvk.version),
        selectable,
        gvk,
        schema: Arc::clone(&schema.schema),
        ty: schema.ty,
    };
    let name = definition.str_at(&["metadata", "name"]);
    VersionWebhook::new(name, conversion, &**calls?, storage)
}

/// A row whose form is its own, since a webhook makes it.
fn convert_by_webhook(row: &mut ResourceRow, webhook: &Arc<VersionWebhook>, version: Ref<'_>) {
    let selectable = version_selectable(version);
    row.stored.fingerprint = version_fingerprint(&row.schema, &selectable, &row.gvk.version);
    row.stored.gvk = row.gvk.clone();
    row.stored.schema = Arc::clone(&row.schema);
    row.stored.ty = row.ty;
    row.stored.conversion = None;
    row.stored.webhook = Some(Arc::clone(webhook));
    row.selectable = selectable.into();
}

/// Versions are different forms, though their schemas were the same.
fn version_fingerprint(schema: &Schema, selectable: &[Selectable], version: &str) -> u64 {
    let mut form = selectable.to_vec();
    form.push(Selectable::text(&format!("version {version}")));
    record_fingerprint(schema, &form)
}

/// The compiled schema of one version.
fn compiled(version: Ref<'_>, patterns: &mut Patterns) -> Option<CompiledSchema> {
    let (table, config_map) = machinery_api::schema_for("", "v1", "ConfigMap")?;
    let (_, metadata) = table.field(config_map, "metadata")?;
    let root = version.at(&["schema", "openAPIV3Schema"]);
    match structural::compile(root, (table, metadata.ty), &FieldPath::root(), patterns) {
        Ok(compiled) => Some(compiled),
        Err(errors) => {
            tracing::warn!(
                version = version.str("name"),
                ?errors,
                "a definition's schema does not compile"
            );
            None
        }
    }
}

fn row(
    definition: &Tree,
    spec: Ref<'_>,
    version: Ref<'_>,
    stored_version: &str,
    schema: CompiledSchema,
    stored: &CompiledSchema,
) -> ResourceRow {
    let names = definition.at(&["status", "acceptedNames"]).unwrap_or(spec);
    let group = spec.str("group");
    let gvk = GroupVersionKind::new(group, version.str("name"), names.str("kind"));
    let stored_gvk = GroupVersionKind::new(group, stored_version, names.str("kind"));
    let plural = names.str("plural").to_owned();
    let texts = |name: &str| {
        names
            .list(name)
            .filter_map(Ref::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let other_form = schema.schema.fingerprint() != stored.schema.fingerprint();
    let conversion: Option<Arc<dyn Conversion>> = if other_form {
        Some(Arc::new(Recoding))
    } else {
        None
    };
    let scale = scale_paths(version);
    let selectable = selectable(spec);
    let embeds = version.at(&["schema", "openAPIV3Schema"]).is_some_and(|schema| {
        schema
            .to_json()
            .contains("\"x-kubernetes-embedded-resource\":true")
    });
    let strategy = SchemaStrategy {
        embeds,
        rules: rules(version),
        status: version.at(&["subresources", "status"]).is_some(),
        replicas: scale.as_ref().map(|paths| {
            (
                version
                    .str_at(&["subresources", "scale", "specReplicasPath"])
                    .to_owned(),
                paths.spec_replicas.clone(),
            )
        }),
    };
    ResourceRow {
        singular: names.str("singular").to_owned(),
        short_names: texts("shortNames"),
        categories: texts("categories"),
        list_kind: names.str("listKind").to_owned(),
        namespaced: spec.str("scope") == "Namespaced",
        verbs: Verbs::ALL,
        subresources: subresources(version, &gvk, scale),
        schema: schema.schema,
        ty: schema.ty,
        custom: true,
        built_in: None,
        columns: columns(version),
        strategy: Arc::new(strategy),
        has_store: true,
        openapi_schema: version
            .at(&["schema", "openAPIV3Schema"])
            .map(|schema| OpenApiSchema::new(published(schema, version))),
        deprecation_warning: deprecation(spec, version, &gvk),
        storage_version_hash: storage_version_hash(&stored_gvk),
        stored: StoredForm {
            prefix: stored_prefix(group, &plural),
            gvk: stored_gvk,
            schema: Arc::clone(&stored.schema),
            ty: stored.ty,
            fingerprint: version_fingerprint(&stored.schema, &selectable, stored_version),
            conversion,
            webhook: None,
        },
        selectable: selectable.into(),
        terminating: machinery_runtime::CancellationToken::new(),
        superseded: machinery_runtime::CancellationToken::new(),
        plural,
        gvk,
    }
}

/// The schema of a version as it is published: with the fields that lists can be narrowed by.
fn published(schema: Ref<'_>, version: Ref<'_>) -> String {
    let mut text = schema.to_json();
    let fields: Vec<String> = version_selectable(version)
        .iter()
        .map(|field| format!(r#"{{"fieldPath":{}}}"#, go_quote(&field.label)))
        .collect();
    if !fields.is_empty() && text.pop() == Some('}') {
        let comma = if text == "{" { "" } else { "," };
        text.push_str(&format!(
            r#"{comma}"x-kubernetes-selectable-fields":[{}]}}"#,
            fields.join(",")
        ));
    }
    text
}

/// The rules of a version's schema.
fn rules(version: Ref<'_>) -> Option<Arc<Rules>> {
    let text = version.at(&["schema", "openAPIV3Schema"])?.to_json();
    if !text.contains("\"x-kubernetes-validations\"") {
        return None;
    }
    let schema = serde_json::from_str(&text).ok()?;
    Rules::compile(&schema).map(Arc::new)
}

fn subresources(version: Ref<'_>, gvk: &GroupVersionKind, scale: Option<ScalePaths>) -> Vec<Subresource> {
    let verbs = Verbs::of([Verb::Get, Verb::Patch, Verb::Update]);
    let mut all = Vec::new();
    if version.at(&["subresources", "status"]).is_some() {
        all.push(Subresource {
            name: "status".into(),
            gvk: gvk.clone(),
            verbs,
            role: SubresourceRole::Status,
        });
    }
    if let Some(paths) = scale {
        let gvk = GroupVersionKind::new("autoscaling", "v1", "Scale");
        all.push(Subresource {
            name: "scale".into(),
            gvk,
            verbs,
            role: SubresourceRole::Scale(paths),
        });
    }
    all
}

fn scale_paths(version: Ref<'_>) -> Option<ScalePaths> {
    let scale = version.at(&["subresources", "scale"])?;
    let path = |name: &str| JsonPath::parse(scale.str(name)).and_then(|path| path.members());
    Some(ScalePaths {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        custom: true,
        selector: path("labelSelectorPath").filter(|path| !path.is_empty()),
    })
}

/// Selectable fields of every version: headers are made from the stored form, whichever version writes.
fn selectable(spec: Ref<'_>) -> Vec<Selectable> {
    let versions = spec.list("versions");
    selectable_fields(versions.flat_map(|version| version.list("selectableFields")))
}

/// Selectable fields of one version.
fn version_selectable(version: Ref<'_>) -> Vec<Selectable> {
    selectable_fields(version.list("selectableFields"))
}

fn selectable_fields<'a>(fields: impl Iterator<Item = Ref<'a>>) -> Vec<Selectable> {
    let mut all: Vec<Selectable> = Vec::new();
    let mut known = HashSet::new();
    for field in fields {
        let label = field.str("jsonPath").trim_start_matches('.').to_owned();
        let path = JsonPath::parse(field.str("jsonPath")).and_then(|path| path.members());
        if let Some(path) = path.filter(|_| known.insert(label.clone())) {
            all.push(Selectable {
                label,
                path,
                absent: "",
                otherwise: None,
            });
        }
    }
    all
}

fn deprecation(spec: Ref<'_>, version: Ref<'_>, gvk: &GroupVersionKind) -> Option<String> {
    let flag = |version: Ref<'_>, name: &str| version.get(name).and_then(Ref::as_bool) == Some(true);
    if !flag(version, "deprecated") {
        return None;
    }
    let own = version.str("deprecationWarning");
    if !own.is_empty() {
        return Some(own.to_owned());
    }
    let said = format!("{} {} is deprecated", gvk.api_version(), gvk.kind);
    let current = spec
        .list("versions")
        .filter(|own| flag(*own, "served") && !flag(*own, "deprecated"));
    let better = current
        .map(|own| own.str("name"))
        .filter(|own| version_priority(own) > version_priority(&gvk.version));
    Some(match better.max_by_key(|own| version_priority(own)) {
        Some(better) => format!("{said}; use {}/{better} {}", gvk.group, gvk.kind),
        None => said,
    })
}

/// Strategy `None`: the same members, seen through the other version's schema. Defaults are those of the version that is
/// stored, as upstream's.
#[derive(Debug)]
struct Recoding;

fn recoded(object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
    let mut text = Vec::new();
    encode_json(object, &mut text);
    match decode_json(schema, ty, &text, Strictness::Ignore) {
        Ok(decoded) => decoded.tree,
        // A value the other version calls ill-typed is kept as it is, as upstream does.
        Err(_) => object.clone(),
    }
}

impl Conversion for Recoding {
    fn to_served(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        recoded(object, schema, ty)
    }

    fn to_stored(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        // What a read by the stored version fills in is there for the other versions.
        let mut own = recoded(object, schema, ty);
        apply_defaults(&mut own);
        own
    }
}
