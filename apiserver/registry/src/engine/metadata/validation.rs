//! Validation of metadata: the namespace of the request, and problems of names, labels, annotations, owners and finalizers.

use super::{
    GRACE, MAX_ANNOTATIONS_BYTES, STANDARD_FINALIZERS, finalizers, generation, meta, name, namespace, place,
    time,
};
use crate::engine::error::RegistryError;
use crate::engine::managed_fields;
use crate::engine::row::ResourceRow;
use crate::engine::store::deletion::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use crate::engine::strategy::Strategy;
use crate::engine::traits::path_segment_problems;
use crate::shared::validation::Errors;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::{Ref, Tree};
use std::collections::HashSet;

/// The namespace of the request goes into the object; a different one in it is refused.
pub fn match_namespace(object: &mut Tree, row: &ResourceRow, requested: &str) -> Result<(), RegistryError> {
    if !row.namespaced {
        object.remove(&["metadata", "namespace"]);
        return Ok(());
    }
    place(object, requested)
}

/// Problems of a new object's metadata.
pub fn validate_new(object: &Tree, row: &ResourceRow, strategy: &dyn Strategy) -> Vec<FieldError> {
    let path = FieldPath::new("metadata");
    let mut problems = name_problems(object, strategy, &path);
    if row.namespaced {
        problems.extend(namespace_problems(object, &path.child("namespace")));
    }
    problems.extend(validate_common(object, row, &path));
    problems
}

fn name_problems(object: &Tree, strategy: &dyn Strategy, path: &FieldPath) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let generate = object.str_at(&["metadata", "generateName"]);
    if !generate.is_empty() {
        for detail in strategy.name_problems(generate, true) {
            problems.push(FieldError::invalid(&path.child("generateName"), generate, detail));
        }
    }
    let own = name(object);
    if own.is_empty() {
        problems.push(FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        ));
        return problems;
    }
    for detail in strategy.name_problems(own, false) {
        problems.push(FieldError::invalid(&path.child("name"), own, detail));
    }
    problems
}

fn namespace_problems(object: &Tree, path: &FieldPath) -> Vec<FieldError> {
    let namespace = namespace(object);
    if namespace.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let details = syntax::dns1123_label(namespace).into_iter();
    details
        .map(|detail| FieldError::invalid(path, namespace, detail))
        .collect()
}

/// Problems of changed metadata.
pub fn validate_changed(object: &Tree, old: &Tree, row: &ResourceRow) -> Vec<FieldError> {
    let path = FieldPath::new("metadata");
    let mut problems = validate_common(object, row, &path).into_list();
    problems.extend(added_finalizers(object, old, &path.child("finalizers")));
    for field in ["name", "namespace", "uid"] {
        let (new, was) = (
            object.str_at(&["metadata", field]),
            old.str_at(&["metadata", field]),
        );
        if new != was {
            problems.push(FieldError::invalid(&path.child(field), new, "field is immutable"));
        }
    }
    let counted = generation(object);
    if counted < generation(old) {
        let detail = "must not be decremented";
        problems.push(FieldError::invalid(&path.child("generation"), counted, detail));
    }
    for field in ["deletionTimestamp", GRACE] {
        problems.extend(changed_deletion(object, old, field, &path));
    }
    problems
}

/// New finalizers of an object that is being deleted.
fn added_finalizers(object: &Tree, old: &Tree, path: &FieldPath) -> Option<FieldError> {
    time(old, "deletionTimestamp")?;
    let before: HashSet<String> = finalizers(old).into_iter().collect();
    let now = finalizers(object).into_iter();
    let added = now.filter(|own| !before.contains(own));
    let shown: Vec<String> = added.map(|own| format!("{own:?}")).collect();
    if shown.is_empty() {
        return None;
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        shown.join(", ")
    );
    Some(FieldError::forbidden(path, detail))
}

/// A change of a time or period of deletion, which the server alone sets.
fn changed_deletion(object: &Tree, old: &Tree, field: &str, path: &FieldPath) -> Option<FieldError> {
    let value = |tree: &Tree| {
        let own = tree.at(&["metadata", field]).filter(|value| !value.is_null());
        own.map(Ref::to_json)
    };
    let new = value(object);
    if new == value(old) {
        return None;
    }
    let shown = Shown(new.unwrap_or_else(|| "null".to_owned()));
    Some(FieldError::invalid(
        &path.child(field),
        shown,
        "field is immutable",
    ))
}

/// Problems of the metadata of an object within another, which may have no name; paths begin at the metadata.
pub(crate) fn embedded_problems(meta: Ref<'_>) -> Vec<FieldError> {
    let (mut problems, path) = (Vec::new(), &FieldPath::root());
    for (field, prefix) in [("generateName", true), ("name", false)] {
        let text = meta.str(field);
        if !text.is_empty() {
            let wrong = path_segment_problems(text, prefix).into_iter();
            problems.extend(wrong.map(|detail| FieldError::invalid(&path.child(field), text, detail)));
        }
    }
    let namespace = meta.str("namespace");
    if !namespace.is_empty() {
        let wrong = syntax::dns1123_label(namespace).into_iter();
        problems.extend(wrong.map(|detail| FieldError::invalid(&path.child("namespace"), namespace, detail)));
    }
    problems.extend(metadata_problems(meta, false, path));
    problems
}

fn validate_common(object: &Tree, row: &ResourceRow, path: &FieldPath) -> Errors {
    let qualified = row.strategy.wants_qualified_finalizers();
    meta(object).map_or_else(Errors::new, |meta| metadata_problems(meta, qualified, path))
}

fn metadata_problems(meta: Ref<'_>, qualified: bool, path: &FieldPath) -> Errors {
    let mut problems = Errors::new();
    let generation = meta.get("generation").and_then(Ref::as_i64).unwrap_or(0);
    if generation < 0 {
        let detail = "must be greater than or equal to 0";
        problems.push(FieldError::invalid(&path.child("generation"), generation, detail));
    }
    if let Some(labels) = meta.get("labels") {
        problems.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = meta.get("annotations") {
        problems.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    problems.extend(validate_owners(meta, &path.child("ownerReferences")));
    problems.extend(validate_finalizers(meta, qualified, &path.child("finalizers")));
    if let Some(record) = meta.get("managedFields") {
        problems.extend(managed_fields::problems(record, &path.child("managedFields")));
    }
    problems
}

/// Keys are qualified names, values are label values.
fn validate_labels(labels: Ref<'_>, path: &FieldPath) -> Errors {
    let mut problems = Errors::new();
    for (key, value) in labels.entries() {
        for detail in syntax::qualified_name(key) {
            problems.push(FieldError::invalid(path, key, detail));
        }
        let value = value.as_str().unwrap_or_default();
        for detail in syntax::label_value(value) {
            problems.push(FieldError::invalid(path, value, detail));
        }
    }
    problems
}

fn validate_annotations(annotations: Ref<'_>, path: &FieldPath) -> Errors {
    let mut problems = Errors::new();
    let mut total = 0;
    for (key, value) in annotations.entries() {
        for detail in syntax::qualified_name(&key.to_lowercase()) {
            problems.push(FieldError::invalid(path, key, detail));
        }
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > MAX_ANNOTATIONS_BYTES {
        problems.push(FieldError::too_long(path, MAX_ANNOTATIONS_BYTES));
    }
    problems
}

fn validate_owners(meta: Ref<'_>, path: &FieldPath) -> Errors {
    let mut problems = Errors::new();
    let mut controller: Option<(&str, &str)> = None;
    for (at, owner) in meta.list("ownerReferences").enumerate() {
        let path = path.index(at);
        validate_owner(owner, &path, &mut problems);
        if owner.get("controller").and_then(Ref::as_bool) != Some(true) {
            continue;
        }
        let own = (owner.str("kind"), owner.str("name"));
        let Some((kind, name)) = controller else {
            controller = Some(own);
            continue;
        };
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {kind}/{name} and {}/{}",
            own.0, own.1
        );
        let list = path.as_str().rsplit_once('[').map_or("", |(list, _)| list);
        let all = meta.get("ownerReferences");
        problems.note(|| FieldError::invalid(&FieldPath::new(list), all, detail));
    }
    problems
}

fn validate_owner(owner: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    let api_version = owner.str("apiVersion");
    // `/` alone is upstream's other word for no version.
    let is_malformed = api_version.matches('/').count() > 1 || api_version.ends_with('/');
    if is_malformed {
        problems.push(FieldError::invalid(
            &path.child("apiVersion"),
            api_version,
            "must be <group>/<version> or <version>",
        ));
    }
    for field in ["apiVersion", "kind", "name", "uid"] {
        if owner.str(field).is_empty() {
            problems.push(FieldError::required(&path.child(field), "must not be empty"));
        }
    }
    if owner.str("kind") == "Event" && matches!(api_version, "v1" | "events.k8s.io/v1") {
        let detail = format!("{api_version}, Kind=Event is disallowed from being an owner");
        problems.note(|| FieldError::invalid(path, owner, detail));
    }
}

fn validate_finalizers(meta: Ref<'_>, qualified: bool, path: &FieldPath) -> Errors {
    let mut problems = Errors::new();
    let (mut orphan, mut foreground) = (false, false);
    for (at, finalizer) in meta.list("finalizers").enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        for detail in syntax::qualified_name(text) {
            problems.push(FieldError::invalid(path, text, detail));
        }
        if qualified && !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            problems.push(FieldError::invalid(&path.index(at), text, detail));
        }
        orphan |= text == FINALIZER_ORPHAN;
        foreground |= text == FINALIZER_FOREGROUND;
    }
    if orphan && foreground {
        let list = meta.get("finalizers");
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        problems.push(FieldError::invalid(path, list, detail));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::embedded_problems;
    use machinery_meta::FieldPath;
    use machinery_schema::Tree;

    /// Answers of kube-apiserver for an embedded resource with these metadata.
    #[test]
    fn metadata_of_embedded_objects_are_validated() {
        let check = |meta: &str, expected: &[&str]| {
            let meta = Tree::from_json(meta).unwrap();
            let found = embedded_problems(meta.root());
            let found: Vec<String> = found
                .iter()
                .map(|own| {
                    format!(
                        "{} {}",
                        FieldPath::new("m").join(&own.path).as_str(),
                        own.value.as_deref().unwrap_or_default()
                    )
                })
                .collect();
            assert_eq!(found, expected);
        };
        check(
            r#"{"name": "A B", "namespace": "B B", "labels": {"a b": "c d"}, "annotations": {"a b": "c"}, "generateName": "-", "finalizers": ["x y"]}"#,
            &[
                r#"m.namespace "B B""#,
                r#"m.labels "a b""#,
                r#"m.labels "c d""#,
                r#"m.annotations "a b""#,
                r#"m.finalizers "x y""#,
            ],
        );
        check(
            r#"{"name": "a/b", "generation": -1}"#,
            &[r#"m.name "a/b""#, "m.generation -1"],
        );
        check(r#"{"name": ".."}"#, &[r#"m.name "..""#]);
        check("{}", &[]);
    }
}
