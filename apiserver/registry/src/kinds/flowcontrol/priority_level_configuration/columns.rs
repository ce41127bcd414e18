//! Columns of PriorityLevelConfigurations in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let number = |path: &[&str]| -> Cell {
        object
            .at(path)
            .and_then(Ref::as_i64)
            .map_or_else(|| NONE.into(), Cell::Int)
    };
    let queuing = ["spec", "limited", "limitResponse", "queuing"];
    let of_queue = |field: &'static str| number(&[queuing[0], queuing[1], queuing[2], queuing[3], field]);
    vec![
        name(object),
        text(object, &["spec", "type"]),
        number(&["spec", "limited", "nominalConcurrencyShares"]),
        of_queue("queues"),
        of_queue("handSize"),
        of_queue("queueLengthLimit"),
        object_age(object, now),
    ]
}
