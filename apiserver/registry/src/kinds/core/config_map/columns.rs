//! Columns of ConfigMaps in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{len, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let count = |field: &str| len(object.get(field));
    vec![
        name(object),
        (count("data") + count("binaryData")).into(),
        object_age(object, now),
    ]
}
