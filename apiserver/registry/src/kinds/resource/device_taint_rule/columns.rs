//! Columns of DeviceTaintRules in a Table.

use crate::shared::columns::format::{name, object_age, text};
use crate::shared::columns::{Cell, age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let taint = |field: &str| text(object, &["spec", "taint", field]);
    vec![
        name(object),
        taint("key"),
        taint("value"),
        taint("effect"),
        age(object.str_at(&["spec", "taint", "timeAdded"]), now).into(),
        object_age(object, now),
    ]
}
