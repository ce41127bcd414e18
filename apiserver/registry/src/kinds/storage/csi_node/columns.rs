//! Columns of CSINodes in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let drivers = object.at(&["spec", "drivers"]).map_or(0, Ref::len);
    vec![
        name(object),
        Cell::Int(i64::try_from(drivers).unwrap_or(0)),
        object_age(object, now),
    ]
}
