//! Columns of ComponentStatuses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::name;
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let healthy = object
        .list("conditions")
        .find(|condition| condition.str("type") == "Healthy");
    let status = match healthy.map(|condition| condition.str("status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |member| healthy.map_or("", |condition| condition.str(member));
    vec![
        name(object),
        status.into(),
        said("message").into(),
        said("error").into(),
    ]
}
