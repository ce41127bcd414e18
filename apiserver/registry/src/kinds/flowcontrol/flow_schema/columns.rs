//! Columns of FlowSchemas in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, int, name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let conditions = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let missing = conditions
        .into_iter()
        .find(|c| c.str("type") == "Dangling")
        .map_or("?", |c| c.str("status"));
    let method = object
        .at(&["spec", "distinguisherMethod", "type"])
        .and_then(Ref::as_str)
        .unwrap_or(NONE);
    vec![
        name(object),
        text(object, &["spec", "priorityLevelConfiguration", "name"]),
        int(object, &["spec", "matchingPrecedence"]).into(),
        method.into(),
        object_age(object, now),
        missing.into(),
    ]
}

/// The sort key of schemas in a list.
pub(super) fn precedence(schema: Ref<'_>) -> i64 {
    int(schema, &["spec", "matchingPrecedence"])
}
