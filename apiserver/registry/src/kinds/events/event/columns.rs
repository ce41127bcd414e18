//! Columns of Events in a Table.

use crate::kinds::core::event::columns::{EventNames, event_cells};
use crate::shared::columns::Cell;
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let names = EventNames {
        regarding: "regarding",
        note: "note",
        count: "deprecatedCount",
        first: "deprecatedFirstTimestamp",
        last: "deprecatedLastTimestamp",
        source: "deprecatedSource",
        controller: "reportingController",
    };
    event_cells(object, now, &names)
}
