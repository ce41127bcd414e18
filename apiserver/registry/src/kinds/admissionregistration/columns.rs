//! Cells that several kinds of the group have.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{UNSET, count, name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells of both kinds of configurations.
pub(super) fn webhooks(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        count(object, &["webhooks"]),
        object_age(object, now),
    ]
}

/// The kind of a policy's parameters.
pub(super) fn param_kind(object: Ref<'_>) -> Cell {
    object.at(&["spec", "paramKind"]).map_or_else(
        || UNSET.into(),
        |own| format!("{}/{}", own.str("apiVersion"), own.str("kind")).into(),
    )
}

/// Cells of both kinds of bindings.
pub(super) fn binding(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let param = object.at(&["spec", "paramRef"]).map_or_else(
        || UNSET.to_owned(),
        |own| match (own.str("namespace"), own.str("name"), own.get("selector")) {
            (_, "", Some(selector)) if !selector.is_null() => go_selector(selector),
            (_, "", _) => UNSET.to_owned(),
            ("", name, _) => format!("*/{name}"),
            (namespace, name, _) => format!("{namespace}/{name}"),
        },
    );
    vec![
        name(object),
        text(object, &["spec", "policyName"]),
        param.into(),
        object_age(object, now),
    ]
}

/// A selector as Go prints the type.
fn go_selector(selector: Ref<'_>) -> String {
    let mut labels: Vec<(&str, &str)> = selector
        .get("matchLabels")
        .into_iter()
        .flat_map(Ref::entries)
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .collect();
    labels.sort_unstable();
    let labels: String = labels
        .iter()
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let expressions: String = selector.list("matchExpressions").map(go_requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn go_requirement(own: Ref<'_>) -> String {
    let (key, operator) = (own.str("key"), own.str("operator"));
    let values: Vec<&str> = own.list("values").filter_map(Ref::as_str).collect();
    let values = values.join(" ");
    format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
}
