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
