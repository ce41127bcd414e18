//! Columns of APIServices in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{condition, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let service = object.at(&["spec", "service"]).map_or_else(
        || "Local".to_owned(),
        |own| format!("{}/{}", own.str("namespace"), own.str("name")),
    );
    let available = condition(object, "Available").map_or_else(
        || "Unknown".to_owned(),
        |c| match c.str("status") {
            "True" => "True".to_owned(),
            status if c.str("reason").is_empty() => status.to_owned(),
            status => format!("{status} ({})", c.str("reason")),
        },
    );
    vec![
        name(object),
        service.into(),
        available.into(),
        object_age(object, now),
    ]
}
