//! What is wrong with a CustomResourceDefinition.

use machinery_meta::{FieldError, FieldPath, syntax};
use machinery_schema::{Ref, structural};

pub(super) fn validate(object: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let Some(spec) = object.get("spec") else {
        return problems;
    };
    let path = FieldPath::new("spec");
    let wanted = format!("{}.{}", spec.str_at(&["names", "plural"]), spec.str("group"));
    let name = object.str_at(&["metadata", "name"]);
    if name != wanted {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        problems.push(FieldError::invalid(
            &FieldPath::new("metadata").child("name"),
            name,
            detail,
        ));
    }
    validate_group(spec, &path, &mut problems);
    if !matches!(spec.str("scope"), "Namespaced" | "Cluster") {
        let supported = ["Cluster", "Namespaced"];
        problems.push(match spec.str("scope") {
            "" => FieldError::required(&path.child("scope"), ""),
            scope => FieldError::not_supported(&path.child("scope"), scope, &supported),
        });
    }
    validate_versions(spec, &path, &mut problems);
    validate_names(spec.get("names"), &path.child("names"), &mut problems);
    problems
}

fn validate_group(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let (group, path) = (spec.str("group"), path.child("group"));
    if group.is_empty() {
        problems.push(FieldError::required(&path, ""));
        return;
    }
    for detail in syntax::dns1123_subdomain(group) {
        problems.push(FieldError::invalid(&path, group, detail));
    }
    if group.split('.').count() < 2 {
        problems.push(FieldError::invalid(
            &path,
            group,
            "should be a domain with at least one dot",
        ));
    }
}

fn validate_versions(spec: Ref<'_>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let versions_path = path.child("versions");
    let mut stored = 0;
    let mut seen: Vec<&str> = Vec::new();
    for (at, version) in spec.list("versions").enumerate() {
        let path = versions_path.index(at);
        let name = version.str("name");
        for detail in syntax::dns1035_label(name) {
            problems.push(FieldError::invalid(&path.child("name"), name, detail));
        }
        if seen.contains(&name) {
            problems.push(FieldError::invalid(
                &versions_path,
                "",
                "must contain unique version names",
            ));
        }
        seen.push(name);
        stored += usize::from(version.get("storage").and_then(Ref::as_bool) == Some(true));
        let schema_path = path.child("schema").child("openAPIV3Schema");
        match version.at(&["schema", "openAPIV3Schema"]) {
            None => problems.push(FieldError::required(&schema_path, "schemas are required")),
            Some(schema) => problems.extend(structural::check_structural(schema, &schema_path)),
        }
    }
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        problems.push(FieldError::invalid(
            &versions_path,
            machinery_meta::field::Shown(spec.get("versions").map(Ref::to_json).unwrap_or_default()),
            detail,
        ));
    }
}

fn validate_names(names: Option<Ref<'_>>, path: &FieldPath, problems: &mut Vec<FieldError>) {
    let text = |field: &str| names.map_or("", |names| names.str(field));
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(field);
        if value.is_empty() {
            problems.push(FieldError::required(&path.child(field), ""));
            continue;
        }
        for detail in syntax::dns1035_label(&value.to_lowercase()) {
            problems.push(FieldError::invalid(&path.child(field), value, detail));
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        problems.push(FieldError::invalid(
            &path.child("listKind"),
            text("listKind"),
            detail,
        ));
    }
    for (at, short) in names
        .into_iter()
        .flat_map(|names| names.list("shortNames"))
        .enumerate()
    {
        let short = short.as_str().unwrap_or_default();
        for detail in syntax::dns1035_label(short) {
            problems.push(FieldError::invalid(
                &path.child("shortNames").index(at),
                short,
                detail,
            ));
        }
    }
}

/// Group, plural and scope are the address of stored objects.
pub(super) fn validate_update(object: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = validate(object);
    let established = old
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let established = established
        .into_iter()
        .any(|c| c.str("type") == "Established" && c.str("status") == "True");
    let mut fixed = vec![vec!["spec", "group"], vec!["spec", "names", "plural"]];
    if established {
        fixed.extend([vec!["spec", "scope"], vec!["spec", "names", "kind"]]);
    }
    for path in fixed {
        let (new, was) = (object.str_at(&path), old.str_at(&path));
        if new != was {
            problems.push(FieldError::invalid(
                &FieldPath::new(&path.join(".")),
                new,
                "field is immutable",
            ));
        }
    }
    problems
}
