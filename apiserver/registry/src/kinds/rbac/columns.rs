//! Columns of bindings in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells of both kinds of bindings.
pub(super) fn binding(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let role = format!(
        "{}/{}",
        object.str_at(&["roleRef", "kind"]),
        object.str_at(&["roleRef", "name"])
    );
    let of = |kind: &str| {
        let own = object
            .list("subjects")
            .filter(|subject| subject.str("kind") == kind);
        own.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", subject.str("namespace"), subject.str("name")),
            _ => subject.str("name").to_owned(),
        })
        .collect::<Vec<_>>()
        .join(", ")
    };
    vec![
        name(object),
        role.into(),
        object_age(object, now),
        of("User").into(),
        of("Group").into(),
        of("ServiceAccount").into(),
    ]
}
