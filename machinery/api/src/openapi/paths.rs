//! `paths`: the operations of each resource, with the kind they are about.

use super::reference;
use crate::table::KindInfo;
use serde_json::{Map, Value, json};

/// Facts of one resource for its paths.
pub(super) struct Resource<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) plural: &'a str,
    pub(super) namespaced: bool,
    pub(super) verbs: Vec<&'a str>,
    pub(super) model: String,
    pub(super) list_model: Option<String>,
    pub(super) subresources: Vec<SubresourcePath<'a>>,
    /// Media types of patches, by which kubectl chooses one.
    pub(super) patches: &'static [&'static str],
}

pub(super) struct SubresourcePath<'a> {
    pub(super) name: &'a str,
    pub(super) gvk: [&'a str; 3],
    pub(super) verbs: Vec<&'a str>,
    pub(super) model: Option<String>,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PATCHES: &[&str] = &[
    "application/apply-patch+cbor",
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// Patches of custom kinds, whose schemas have no merge keys.
pub(super) const CUSTOM_PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

impl<'a> Resource<'a> {
    pub(super) fn built_in(kind: &'a KindInfo) -> Self {
        let schema = crate::schema();
        let model = |id| {
            let name = schema
                .names()
                .find(|(name, own)| *own == id && name.contains('.'))?
                .0;
            Some(super::schemas::model_name(name))
        };
        let subresources = kind.subresources.iter().map(|own| SubresourcePath {
            name: &own.name,
            gvk: [&own.gvk.group, &own.gvk.version, &own.gvk.kind],
            verbs: own.verbs.iter().map(String::as_str).collect(),
            model: own.ty.and_then(model),
        });
        Self {
            group: &kind.gvk.group,
            version: &kind.gvk.version,
            kind: &kind.gvk.kind,
            plural: &kind.plural,
            namespaced: kind.namespaced,
            verbs: kind.verbs.iter().map(String::as_str).collect(),
            model: model(kind.ty).unwrap_or_default(),
            list_model: kind.list_ty.and_then(model),
            subresources: subresources.collect(),
            patches: PATCHES,
        }
    }

    fn gvk(&self) -> Value {
        gvk([self.group, self.version, self.kind])
    }

    fn has(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

/// Adds the paths of a resource and its subresources.
pub(super) fn add(paths: &mut Map<String, Value>, resource: &Resource<'_>) {
    let base = base(resource.group, resource.version);
    let scoped = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}")
    } else {
        base.clone()
    };
    let collection = format!("{scoped}/{}", resource.plural);
    let item = format!("{collection}/{{name}}");
    put(
        paths,
        collection,
        collection_operations(resource),
        path_parameters(resource, false),
    );
    if resource.namespaced && resource.has("list") {
        let mut everywhere = Map::new();
        everywhere.insert("get".to_owned(), list_operation(resource));
        put(
            paths,
            format!("{base}/{}", resource.plural),
            everywhere,
            Vec::new(),
        );
    }
    put(
        paths,
        item.clone(),
        item_operations(resource),
        path_parameters(resource, true),
    );
    for subresource in &resource.subresources {
        let operations = subresource_operations(subresource, resource.patches);
        put(
            paths,
            format!("{item}/{}", subresource.name),
            operations,
            path_parameters(resource, true),
        );
    }
}

/// The discovery document's own path.
pub(super) fn add_group(paths: &mut Map<String, Value>, group: &str, version: &str) {
    let response = responses(&reference(&format!("{META}.APIResourceList")));
    let get = json!({"description": "get available resources", "responses": response});
    paths.insert(format!("{}/", base(group, version)), json!({"get": get}));
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

fn put(
    paths: &mut Map<String, Value>,
    path: String,
    mut operations: Map<String, Value>,
    parameters: Vec<Value>,
) {
    if operations.is_empty() {
        return;
    }
    if !parameters.is_empty() {
        operations.insert("parameters".to_owned(), Value::Array(parameters));
    }
    paths.insert(path, Value::Object(operations));
}

fn collection_operations(resource: &Resource<'_>) -> Map<String, Value> {
    let mut out = Map::new();
    if resource.has("list") {
        out.insert("get".to_owned(), list_operation(resource));
    }
    if resource.has("create") {
        let body = reference(&resource.model);
        let description = format!("create a {}", resource.kind);
        out.insert(
            "post".to_owned(),
            write_operation("post", &resource.gvk(), &body, &description),
        );
    }
    if resource.has("deletecollection") {
        let status = reference(&format!("{META}.Status"));
        let description = format!("delete collection of {}", resource.kind);
        out.insert(
            "delete".to_owned(),
            operation("deletecollection", &resource.gvk(), &status, &description),
        );
    }
    out
}

fn list_operation(resource: &Resource<'_>) -> Value {
    let model = resource.list_model.as_deref().unwrap_or(&resource.model);
    let description = format!("list or watch objects of kind {}", resource.kind);
    let mut own = operation("list", &resource.gvk(), &reference(model), &description);
    own["parameters"] = json!([
        query("allowWatchBookmarks", "boolean"),
        query("continue", "string"),
        query("fieldSelector", "string"),
        query("labelSelector", "string"),
        query("limit", "integer"),
        query("resourceVersion", "string"),
        query("resourceVersionMatch", "string"),
        query("sendInitialEvents", "boolean"),
        query("timeoutSeconds", "integer"),
        query("watch", "boolean"),
    ]);
    own
}

fn item_operations(resource: &Resource<'_>) -> Map<String, Value> {
    let (gvk, body, kind) = (resource.gvk(), reference(&resource.model), resource.kind);
    let mut out = Map::new();
    if resource.has("get") {
        out.insert(
            "get".to_owned(),
            operation("get", &gvk, &body, &format!("read the specified {kind}")),
        );
    }
    if resource.has("update") {
        let description = format!("replace the specified {kind}");
        out.insert(
            "put".to_owned(),
            write_operation("put", &gvk, &body, &description),
        );
    }
    if resource.has("patch") {
        let description = format!("partially update the specified {kind}");
        out.insert(
            "patch".to_owned(),
            patch_operation(resource.patches, &gvk, &body, &description),
        );
    }
    if resource.has("delete") {
        out.insert("delete".to_owned(), delete_operation(&gvk, kind));
    }
    out
}

fn subresource_operations(subresource: &SubresourcePath<'_>, patches: &[&str]) -> Map<String, Value> {
    let gvk = gvk(subresource.gvk);
    let body = subresource
        .model
        .as_deref()
        .map_or_else(|| json!({"type": "string"}), reference);
    let mut out = Map::new();
    for verb in &subresource.verbs {
        let description = format!("{verb} {} of the specified object", subresource.name);
        let (method, own) = match *verb {
            "get" => ("get", operation("get", &gvk, &body, &description)),
            "create" => ("post", write_operation("post", &gvk, &body, &description)),
            "update" => ("put", write_operation("put", &gvk, &body, &description)),
            "patch" => ("patch", patch_operation(patches, &gvk, &body, &description)),
            "delete" => ("delete", operation("delete", &gvk, &body, &description)),
            _ => continue,
        };
        out.insert(method.to_owned(), own);
    }
    out
}

fn operation(action: &str, gvk: &Value, body: &Value, description: &str) -> Value {
    json!({
        "description": description,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
        "responses": responses(body),
    })
}

fn write_operation(action: &str, gvk: &Value, body: &Value, description: &str) -> Value {
    let mut own = operation(action, gvk, body, description);
    own["requestBody"] = json!({"required": true, "content": {"*/*": {"schema": body}}});
    own["parameters"] = json!([
        query("dryRun", "string"),
        query("fieldManager", "string"),
        query("fieldValidation", "string"),
    ]);
    own
}

fn patch_operation(patches: &[&str], gvk: &Value, body: &Value, description: &str) -> Value {
    let mut own = operation("patch", gvk, body, description);
    let schema = reference(&format!("{META}.Patch"));
    let content: Map<String, Value> = patches
        .iter()
        .map(|kind| ((*kind).to_owned(), json!({"schema": schema})))
        .collect();
    own["requestBody"] = json!({"required": true, "content": content});
    own["parameters"] = json!([
        query("dryRun", "string"),
        query("fieldManager", "string"),
        query("fieldValidation", "string"),
        query("force", "boolean"),
    ]);
    own
}

fn delete_operation(gvk: &Value, kind: &str) -> Value {
    let status = reference(&format!("{META}.Status"));
    let mut own = operation("delete", gvk, &status, &format!("delete a {kind}"));
    let options = reference(&format!("{META}.DeleteOptions"));
    own["requestBody"] = json!({"content": {"*/*": {"schema": options}}});
    own["parameters"] = json!([
        query("dryRun", "string"),
        query("gracePeriodSeconds", "integer"),
        query("orphanDependents", "boolean"),
        query("propagationPolicy", "string"),
    ]);
    own
}

fn responses(body: &Value) -> Value {
    let forms = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ];
    let content: Map<String, Value> = forms
        .iter()
        .map(|form| ((*form).to_owned(), json!({"schema": body})))
        .collect();
    json!({"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}})
}

fn query(name: &str, ty: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}})
}

fn path_parameters(resource: &Resource<'_>, item: bool) -> Vec<Value> {
    let path = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}});
    let mut out = Vec::new();
    if item {
        out.push(path("name"));
    }
    if resource.namespaced {
        out.push(path("namespace"));
    }
    out.push(query("pretty", "string"));
    out
}

fn gvk([group, version, kind]: [&str; 3]) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}
