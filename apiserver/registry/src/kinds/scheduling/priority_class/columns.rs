//! Columns of PriorityClasses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{int, name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        int(object, &["value"]).into(),
        (object.get("globalDefault").and_then(Ref::as_bool) == Some(true)).into(),
        object_age(object, now),
        text(object, &["preemptionPolicy"]),
    ]
}
