//! Validation of CustomResourceDefinitions (upstream's `pkg/apis/apiextensions/validation`).
//!
//! This module validates the definition as a whole; [`versions`] validates each version, [`conversion`] the
//! conversion between them. Upstream keeps once what all versions have in common, and its paths show that.

mod conversion;
mod root_fields;
mod selectable;
mod versions;

use super::approval::{APPROVED, Approval, is_protected};
use crate::shared::validation::Errors;
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::Ref;
use std::cell::RefCell;
use std::collections::HashSet;

const IMMUTABLE: &str = "field is immutable";

/// Every problem of a new definition.
pub(super) fn validate(object: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Errors::new();
    problems.extend(own_name(object));
    problems.extend(validate_spec(object, None));
    if problems.is_empty() {
        versions::rules(object, &mut problems);
    }
    problems.extend(validate_status(object));
    stored_versions(object, &mut problems);
    approval(object, None, &mut problems);
    preserved(object, &mut problems);
    problems.into_list()
}

/// Every problem of a changed one. Group, plural and scope are the address of stored objects.
pub(super) fn validate_update(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Errors::new();
    problems.extend(validate_spec(object, old.get("spec")));
    // What was accepted before stays changeable in other ways.
    let versions = |own: Ref<'_>| own.at(&["spec", "versions"]).map(Ref::to_json);
    if problems.is_empty() && versions(object) != versions(old) {
        versions::rules(object, &mut problems);
    }
    let established = old
        .get("status")
        .into_iter()
        .flat_map(|own| own.list("conditions"));
    let mut established = established.into_iter();
    let established = established.any(|own| own.str("type") == "Established" && own.str("status") == "True");
    let mut fixed = vec![["spec", "group"].as_slice(), &["spec", "names", "plural"]];
    if established {
        fixed.splice(..0, [["spec", "scope"].as_slice(), &["spec", "names", "kind"]]);
    }
    for path in fixed {
        let (new, was) = (object.str_at(path), old.str_at(path));
        if new != was {
            let place = FieldPath::new(&path.join("."));
            problems.push(FieldError::invalid(&place, new, IMMUTABLE));
        }
    }
    problems.extend(validate_status(object));
    stored_versions(object, &mut problems);
    approval(object, Some(old), &mut problems);
    preserved(object, &mut problems);
    problems.into_list()
}

/// Every problem of a changed status.
pub(super) fn validate_status(object: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Errors::new();
    if let Some(names) = object.at(&["status", "acceptedNames"]) {
        let path = FieldPath::new("status").child("acceptedNames");
        names_syntax(names, &path, &mut problems);
    }
    problems.into_list()
}

fn own_name(object: Ref<'_>) -> Vec<FieldError> {
    let spec = |path: &[&str]| object.get("spec").map_or("", |spec| spec.str_at(path));
    let wanted = format!("{}.{}", spec(&["names", "plural"]), spec(&["group"]));
    let given = ["generateName", "name"].map(|field| (field, object.str_at(&["metadata", field])));
    let wrong = given
        .into_iter()
        .filter(|(_, name)| !name.is_empty() && *name != wanted);
    wrong
        .map(|(field, name)| {
            let path = FieldPath::new("metadata").child(field);
            FieldError::invalid(&path, name, "must be spec.names.plural+\".\"+spec.group")
        })
        .collect()
}

fn validate_spec(object: Ref<'_>, old: Option<Ref<'_>>) -> Errors {
    let mut problems = Errors::new();
    let Some(spec) = object.get("spec") else {
        return problems;
    };
    let path = FieldPath::new("spec");
    group(spec.str("group"), &path.child("group"), &mut problems);
    one_of(
        spec.str("scope"),
        &path.child("scope"),
        &["Cluster", "Namespaced"],
        &mut problems,
    );
    let patterns = RefCell::default();
    let known = old.map_or(0, |old| old.list("versions").count());
    versions::each(spec, &path, (&patterns, known), &mut problems);
    if let Some(names) = spec.get("names") {
        let path = path.child("names");
        for field in ["plural", "singular", "kind", "listKind"] {
            if names.str(field).is_empty() {
                problems.push(FieldError::required(&path.child(field), ""));
            }
        }
        names_syntax(names, &path, &mut problems);
    }
    versions::shared(spec, &path, &patterns, &mut problems);
    conversion::validate(spec, &path.child("conversion"), &mut problems);
    problems
}

fn group(group: &str, path: &FieldPath, problems: &mut Errors) {
    let wrong = syntax::dns1123_subdomain(group);
    if group.is_empty() {
        problems.push(FieldError::required(path, ""));
    } else if !wrong.is_empty() {
        problems.push(FieldError::invalid(path, group, wrong.join(",")));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        problems.push(FieldError::invalid(path, group, detail));
    }
}

/// A text that must be one of a few.
fn one_of(value: &str, path: &FieldPath, known: &[&str], problems: &mut Errors) {
    if value.is_empty() {
        problems.push(FieldError::required(path, ""));
    } else if !known.contains(&value) {
        problems.push(FieldError::not_supported(path, value, known));
    }
}

fn names_syntax(names: Ref<'_>, path: &FieldPath, problems: &mut Errors) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    for (field, before) in [
        ("plural", ""),
        ("singular", ""),
        ("kind", MIXED),
        ("listKind", MIXED),
    ] {
        let name = names.str(field);
        let lower = name.to_lowercase();
        let checked = if before.is_empty() { name } else { &lower };
        if !name.is_empty() {
            problems.extend(label(&path.child(field), name, checked, before));
        }
    }
    let listed = |list: &str| -> Vec<FieldError> {
        let all = names.list(list).filter_map(Ref::as_str).enumerate();
        all.filter_map(|(at, name)| label(&path.child(list).index(at), name, name, ""))
            .collect()
    };
    problems.extend(listed("shortNames"));
    let kind = names.str("kind");
    if !kind.is_empty() && kind == names.str("listKind") {
        let detail = "kind and listKind may not be the same";
        problems.push(FieldError::invalid(&path.child("listKind"), kind, detail));
    }
    problems.extend(listed("categories"));
}

fn label(path: &FieldPath, shown: &str, name: &str, before: &str) -> Option<FieldError> {
    let wrong = syntax::dns1035_label(name);
    let detail = format!("{before}{}", wrong.join(","));
    (!wrong.is_empty()).then(|| FieldError::invalid(path, shown, detail))
}

/// Refuses the removal of a version in which objects may be stored: their bytes could not be read any more.
fn stored_versions(object: Ref<'_>, problems: &mut Errors) {
    let path = FieldPath::new("status").child("storedVersions");
    let status = object.get("status");
    let stored: Vec<&str> = status
        .into_iter()
        .flat_map(|status| status.list("storedVersions"))
        .filter_map(Ref::as_str)
        .collect();
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        return problems.push(FieldError::invalid(&path, Shown("null".into()), detail));
    }
    let versions = || {
        object
            .get("spec")
            .into_iter()
            .flat_map(|own| own.list("versions"))
    };
    let known: HashSet<&str> = stored.iter().copied().collect();
    let is_stored = |version: &Ref<'_>| version.get("storage").and_then(Ref::as_bool) == Some(true);
    for version in versions().filter(is_stored) {
        let name = version.str("name");
        if !known.contains(name) {
            let shown = status.and_then(|own| own.get("storedVersions"));
            let detail = format!("must have the storage version {name}");
            problems.note(|| FieldError::invalid(&path, shown, detail));
        }
    }
    let names: HashSet<&str> = versions().map(|version| version.str("name")).collect();
    for (at, name) in stored.into_iter().enumerate() {
        if !names.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            problems.note(|| FieldError::invalid(&path.index(at), name, detail));
        }
    }
}

/// A definition in a protected group needs an approval; one that was stored without may stay so.
fn approval(object: Ref<'_>, old: Option<Ref<'_>>, problems: &mut Errors) {
    let group = object.get("spec").map_or("", |spec| spec.str("group"));
    let approval = Approval::of(object);
    if !is_protected(group) || old.is_some_and(|old| Approval::of(old) == approval) {
        return;
    }
    let path = FieldPath::new("metadata").child("annotations").key(APPROVED);
    match approval {
        Approval::Approved(_) | Approval::Bypassed(_) => {}
        Approval::Missing => problems.push(FieldError::required(&path, approval.message())),
        Approval::Invalid(text) => problems.push(FieldError::invalid(&path, text, approval.message())),
    }
}

fn preserved(object: Ref<'_>, problems: &mut Errors) {
    if object
        .at(&["spec", "preserveUnknownFields"])
        .and_then(Ref::as_bool)
        == Some(true)
    {
        let path = FieldPath::new("spec").child("preserveUnknownFields");
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        problems.push(FieldError::invalid(&path, true, detail));
    }
}
