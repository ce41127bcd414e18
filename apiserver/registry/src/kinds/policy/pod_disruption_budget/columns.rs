//! Columns of PodDisruptionBudgets in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{int, int_or_string, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let bound = |field: &str| {
        object
            .at(&["spec", field])
            .map_or_else(|| "N/A".to_owned(), int_or_string)
    };
    vec![
        name(object),
        bound("minAvailable").into(),
        bound("maxUnavailable").into(),
        int(object, &["status", "disruptionsAllowed"]).into(),
        object_age(object, now),
    ]
}
