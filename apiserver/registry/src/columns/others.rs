//! Admission, definitions and API services.

use super::format::{UNSET, condition, name, object_age, text};
use super::{Cell, KindCells};
use jiff::Timestamp;
use machinery_schema::Ref;

pub(super) fn cells(group: &str, plural: &str) -> Option<KindCells> {
    Some(match (group, plural) {
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => webhooks,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => mutating_policy,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => validating_policy,
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings",
        ) => binding,
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition,
        ("apiregistration.k8s.io", "apiservices") => api_service,
        _ => return None,
    })
}

fn count(object: Ref<'_>, path: &[&str]) -> Cell {
    Cell::Int(i64::try_from(object.at(path).map_or(0, Ref::len)).unwrap_or(0))
}

fn webhooks(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        count(object, &["webhooks"]),
        object_age(object, now),
    ]
}

fn param_kind(object: Ref<'_>) -> Cell {
    object.at(&["spec", "paramKind"]).map_or_else(
        || UNSET.into(),
        |own| format!("{}/{}", own.str("apiVersion"), own.str("kind")).into(),
    )
}

fn mutating_policy(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        count(object, &["spec", "mutations"]),
        param_kind(object),
        object_age(object, now),
    ]
}

fn validating_policy(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        count(object, &["spec", "validations"]),
        param_kind(object),
        object_age(object, now),
    ]
}

fn binding(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let param = object.at(&["spec", "paramRef"]).map_or_else(
        || UNSET.to_owned(),
        |own| match (own.str("namespace"), own.str("name")) {
            ("", name) => format!("*/{name}"),
            (namespace, "") => format!("{namespace}/*"),
            (namespace, name) => format!("{namespace}/{name}"),
        },
    );
    vec![
        name(object),
        text(object, &["spec", "policyName"]),
        param.into(),
        object_age(object, now),
    ]
}

fn definition(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let is = |version: Ref<'_>, name: &str| version.get(name).and_then(Ref::as_bool) == Some(true);
    let versions = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("versions"));
    let mut versions: Vec<String> = versions
        .filter(|version| is(*version, "served"))
        .map(|version| match is(version, "storage") {
            true => format!("{}(storage)", version.str("name")),
            false => version.str("name").to_owned(),
        })
        .collect();
    versions.sort();
    let short: Vec<&str> = object
        .at(&["spec", "names"])
        .into_iter()
        .flat_map(|n| n.list("shortNames"))
        .filter_map(Ref::as_str)
        .collect();
    vec![
        name(object),
        text(object, &["spec", "scope"]),
        versions.join(",").into(),
        text(object, &["metadata", "creationTimestamp"]),
        text(object, &["spec", "group"]),
        text(object, &["spec", "names", "kind"]),
        short.join(",").into(),
        condition(object, "Established")
            .is_some_and(|c| c.str("status") == "True")
            .into(),
    ]
}

fn api_service(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let service = object.at(&["spec", "service"]).map_or_else(
        || "Local".to_owned(),
        |own| format!("{}/{}", own.str("namespace"), own.str("name")),
    );
    let available = condition(object, "Available").map_or_else(
        || "Unknown".to_owned(),
        |c| match c.str("status") {
            "True" => "True".to_owned(),
            status => format!("{status} ({})", c.str("reason")),
        },
    );
    vec![
        name(object),
        service.into(),
        available.into(),
        object_age(object, now),
    ]
}
