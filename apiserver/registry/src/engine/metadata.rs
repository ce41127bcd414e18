//! Metadata that the server owns: names, uids, times, generation; and what is wrong with the rest of it.

use crate::engine::context::RequestContext;
use crate::engine::error::RegistryError;
use crate::engine::managed_fields;
use crate::engine::row::ResourceRow;
use crate::engine::strategy::{ObjectPart, Strategy, path_segment_problems};
use crate::shared::validation::Errors;
use jiff::Timestamp;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_runtime::Runtime;
use machinery_schema::{Mut, Ref, Step, Tree, Value};
use std::collections::HashSet;

/// Names generated from a base have this many random characters after it.
/// The member that says how many seconds an object may take to end.
pub(crate) const GRACE: &str = "deletionGracePeriodSeconds";
const RANDOM_SUFFIX: usize = 5;
const MAX_NAME: usize = 63;
const MAX_GENERATED_BASE: usize = MAX_NAME - RANDOM_SUFFIX;
/// Without vowels and look-alikes, as upstream has it.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Finalizers without a domain, which the server itself knows.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// All annotations of an object together.
pub(crate) const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// `metadata` of an object; an object without it reads as empty.
pub fn meta(object: &Tree) -> Option<Ref<'_>> {
    object.get("metadata")
}

pub fn name(object: &Tree) -> &str {
    object.str_at(&["metadata", "name"])
}

pub fn namespace(object: &Tree) -> &str {
    object.str_at(&["metadata", "namespace"])
}

pub fn uid(object: &Tree) -> &str {
    object.str_at(&["metadata", "uid"])
}

pub fn resource_version(object: &Tree) -> &str {
    object.str_at(&["metadata", "resourceVersion"])
}

pub fn generation(object: &Tree) -> i64 {
    object
        .at(&["metadata", "generation"])
        .and_then(Ref::as_i64)
        .unwrap_or(0)
}

pub fn finalizers(object: &Tree) -> Vec<String> {
    let listed = meta(object).into_iter().flat_map(|meta| meta.list("finalizers"));
    listed.filter_map(Ref::as_str).map(str::to_owned).collect()
}

pub fn time(object: &Tree, field: &str) -> Option<Timestamp> {
    object.str_at(&["metadata", field]).parse().ok()
}

/// The form of a time in metadata: whole seconds.
pub fn format_time(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// A name from a base and random characters.
pub fn generate_name(base: &str, runtime: &Runtime) -> String {
    let cut = base.floor_char_boundary(MAX_GENERATED_BASE);
    let mut name = base[..cut].to_owned();
    let mut bits = runtime.random_u64();
    for _ in 0..RANDOM_SUFFIX {
        let at = usize::try_from(bits % 27).unwrap_or(0);
        name.push(char::from(ALPHABET[at]));
        bits /= 27;
    }
    name
}

/// The namespace of the request goes into the object; a different one in it is refused.
pub fn match_namespace(object: &mut Tree, row: &ResourceRow, requested: &str) -> Result<(), RegistryError> {
    if !row.namespaced {
        object.remove(&["metadata", "namespace"]);
        return Ok(());
    }
    place(object, requested)
}

/// Puts an object that names no namespace into that of the request; another one is refused.
pub fn place(object: &mut Tree, requested: &str) -> Result<(), RegistryError> {
    let own = namespace(object);
    if own.is_empty() {
        object.set_str(&["metadata", "namespace"], requested);
        return Ok(());
    }
    same_namespace(own, requested)
}

/// The namespace that an object names must be that of the request.
pub fn same_namespace(own: &str, requested: &str) -> Result<(), RegistryError> {
    if own == requested {
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(RegistryError::BadRequest(message.to_owned()))
}

/// Takes away what a client may not say of a new object.
pub fn wipe(object: &mut Tree) {
    object.with(&["metadata"], |mut meta| {
        for field in ["deletionTimestamp", GRACE, "selfLink", "creationTimestamp", "uid"] {
            meta.remove(field);
        }
    });
}

/// Fills what the server owns of a new object's metadata, all but a generated name.
pub fn fill_new(object: &mut Tree, ctx: &RequestContext) {
    let now = format_time(ctx.runtime.now());
    let uid = ctx.runtime.uuid().to_string();
    wipe(object);
    object.with(&["metadata"], |mut meta| {
        meta.set("creationTimestamp", now.as_str());
        meta.set("uid", uid.as_str());
    });
}

/// Carries over what an update may not change; an absent uid is taken from the live object.
pub fn carry_over(object: &mut Tree, old: &Tree) {
    let Some(old_meta) = meta(old) else { return };
    let kept = ["creationTimestamp", "selfLink", "generation"];
    object.root_mut().entry("metadata");
    object.with(&["metadata"], |mut meta| {
        for field in kept {
            restore(&mut meta, old_meta, field);
        }
        let is_set = |meta: Ref<'_>, field| meta.get(field).is_some_and(|value| !value.is_null());
        // Where the old object has none, a new one stays for validation to refuse.
        if is_set(old_meta, "deletionTimestamp") {
            restore(&mut meta, old_meta, "deletionTimestamp");
        }
        if !is_set(meta.as_ref(), GRACE) {
            restore(&mut meta, old_meta, GRACE);
        }
        if meta.as_ref().str("uid").is_empty() {
            restore(&mut meta, old_meta, "uid");
        }
        if meta.as_ref().str("name").is_empty() {
            restore(&mut meta, old_meta, "name");
        }
    });
}

/// Puts a member back to what it is in `old` (or, without one there, away).
pub fn restore(object: &mut Mut<'_>, old: Ref<'_>, field: &str) {
    match old.get(field) {
        Some(value) => object.set(field, value),
        None => {
            object.remove(field);
        }
    }
}

/// Puts labels, annotations, owners, finalizers and the time of deletion back, for kinds whose status goes without metadata.
pub fn restore_for_status(object: &mut Tree, old: &Tree) {
    for field in [
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "deletionTimestamp",
    ] {
        restore_field(object, old, field);
    }
}

/// Restores what [`restore_for_status`] does where the status is what a write addresses.
pub(crate) fn keep_in_status(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part == ObjectPart::Status {
        restore_for_status(object, old);
    }
}

/// Puts all of the metadata but these fields back to what it is in `old`.
pub fn restore_all_but(object: &mut Tree, old: &Tree, kept: &[&str]) {
    let names = |tree: &Tree| -> Vec<String> {
        let fields = meta(tree).into_iter().flat_map(Ref::entries);
        fields.map(|(name, _)| name.to_owned()).collect()
    };
    let mut fields = names(object);
    fields.extend(names(old));
    for field in fields.iter().filter(|field| !kept.contains(&field.as_str())) {
        restore_field(object, old, field);
    }
}

/// Puts one field of the metadata back to what it is in `old`.
pub fn restore_field(object: &mut Tree, old: &Tree, field: &str) {
    match old.at(&["metadata", field]) {
        Some(value) => object.set(&[Step::Name("metadata"), Step::Name(field)], value),
        None => {
            object.remove(&["metadata", field]);
        }
    }
}

/// Puts a member of the root back to what it is in `old` (or, without one there, away).
pub fn restore_member(object: &mut Tree, old: &Tree, member: &str) {
    match old.get(member) {
        Some(value) => object.set(&[Step::Name(member)], value),
        None => {
            object.remove(&[member]);
        }
    }
}

/// Everything but metadata and `part` is the same.
pub fn spec_differs(object: &Tree, old: &Tree) -> bool {
    let counted = |name: &str| !matches!(name, "metadata" | "status" | "apiVersion" | "kind");
    let mut left = object.root().entries().filter(|(name, _)| counted(name));
    let mut right = old.root().entries().filter(|(name, _)| counted(name));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return false,
            (Some((a, x)), Some((b, y))) if a == b && x == y => {}
            _ => return true,
        }
    }
}

pub fn set_generation(object: &mut Tree, generation: i64) {
    object.set(
        &[Step::Name("metadata"), Step::Name("generation")],
        Value::Int(generation),
    );
}

/// Problems of a new object's metadata.
pub fn validate_new(object: &Tree, row: &ResourceRow, strategy: &dyn Strategy) -> Vec<FieldError> {
    let path = FieldPath::new("metadata");
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
    } else {
        for detail in strategy.name_problems(own, false) {
            problems.push(FieldError::invalid(&path.child("name"), own, detail));
        }
    }
    if row.namespaced {
        let namespace = namespace(object);
        if namespace.is_empty() {
            problems.push(FieldError::required(&path.child("namespace"), ""));
        } else {
            for detail in syntax::dns1123_label(namespace) {
                problems.push(FieldError::invalid(&path.child("namespace"), namespace, detail));
            }
        }
    }
    problems.extend(validate_common(object, row, &path));
    problems
}

/// Problems of changed metadata.
pub fn validate_changed(object: &Tree, old: &Tree, row: &ResourceRow) -> Vec<FieldError> {
    let path = FieldPath::new("metadata");
    let mut problems = validate_common(object, row, &path).into_list();
    if time(old, "deletionTimestamp").is_some() {
        let before: HashSet<String> = finalizers(old).into_iter().collect();
        let added: Vec<String> = finalizers(object)
            .into_iter()
            .filter(|f| !before.contains(f))
            .collect();
        if !added.is_empty() {
            let shown: Vec<String> = added.iter().map(|f| format!("{f:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            );
            problems.push(FieldError::forbidden(&path.child("finalizers"), detail));
        }
    }
    for field in ["name", "namespace", "uid"] {
        let (new, was) = (
            object.str_at(&["metadata", field]),
            old.str_at(&["metadata", field]),
        );
        if new != was {
            problems.push(FieldError::invalid(&path.child(field), new, "field is immutable"));
        }
    }
    if generation(object) < generation(old) {
        let detail = "must not be decremented";
        problems.push(FieldError::invalid(
            &path.child("generation"),
            generation(object),
            detail,
        ));
    }
    for field in ["deletionTimestamp", GRACE] {
        let value = |tree: &Tree| {
            let own = tree.at(&["metadata", field]).filter(|value| !value.is_null());
            own.map(Ref::to_json)
        };
        let new = value(object);
        if new != value(old) {
            let shown = Shown(new.unwrap_or_else(|| "null".to_owned()));
            problems.push(FieldError::invalid(
                &path.child(field),
                shown,
                "field is immutable",
            ));
        }
    }
    problems
}

/// Problems of the metadata of an object within another, which may have no name.
pub(crate) fn embedded_problems(meta: Ref<'_>, path: &FieldPath) -> Vec<FieldError> {
    let mut problems = Vec::new();
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
pub fn validate_labels(labels: Ref<'_>, path: &FieldPath) -> Errors {
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
        let api_version = owner.str("apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if api_version.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            problems.push(FieldError::invalid(
                &path.child("apiVersion"),
                api_version,
                detail,
            ));
        } else if version.is_empty() {
            let child = path.child("apiVersion");
            problems.push(FieldError::invalid(
                &child,
                api_version,
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if owner.str(field).is_empty() {
                problems.push(FieldError::required(&path.child(field), "must not be empty"));
            }
        }
        if owner.str("kind") == "Event" && matches!(api_version, "v1" | "events.k8s.io/v1") {
            let detail = format!("{api_version}, Kind=Event is disallowed from being an owner");
            problems.note(|| FieldError::invalid(&path, owner, detail));
        }
        if owner.get("controller").and_then(Ref::as_bool) == Some(true) {
            if let Some((kind, name)) = controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                    kind,
                    name,
                    owner.str("kind"),
                    owner.str("name")
                );
                let list = path.as_str().rsplit_once('[').map_or("", |(list, _)| list);
                let all = meta.get("ownerReferences");
                problems.note(|| FieldError::invalid(&FieldPath::new(list), all, detail));
            } else {
                controller = Some((owner.str("kind"), owner.str("name")));
            }
        }
    }
    problems
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
        orphan |= text == crate::engine::store::deletion::FINALIZER_ORPHAN;
        foreground |= text == crate::engine::store::deletion::FINALIZER_FOREGROUND;
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
            let found = embedded_problems(meta.root(), &FieldPath::new("m"));
            let found: Vec<String> = found
                .iter()
                .map(|own| {
                    format!(
                        "{} {}",
                        own.path.as_str(),
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
