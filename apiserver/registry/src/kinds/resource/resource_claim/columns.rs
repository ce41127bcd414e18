//! Columns of ResourceClaims in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let mut states: Vec<&str> = Vec::new();
    if !object.str_at(&["metadata", "deletionTimestamp"]).is_empty() {
        states.push("deleted");
    }
    if object.at(&["status", "allocation"]).is_none() {
        states.push("pending");
    } else {
        states.push("allocated");
        if object
            .at(&["status", "reservedFor"])
            .is_some_and(|list| !list.is_empty())
        {
            states.push("reserved");
        }
    }
    vec![name(object), states.join(",").into(), object_age(object, now)]
}
