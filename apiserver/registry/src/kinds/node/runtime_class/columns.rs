//! Columns of RuntimeClasses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![name(object), text(object, &["handler"]), object_age(object, now)]
}
