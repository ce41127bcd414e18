//! Columns of IngressClasses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let parameters = object.at(&["spec", "parameters"]).map_or_else(
        || NONE.to_owned(),
        |own| {
            let kind = match own.str("apiGroup") {
                "" => own.str("kind").to_owned(),
                group => format!("{}.{group}", own.str("kind")),
            };
            format!("{kind}/{}", own.str("name"))
        },
    );
    vec![
        name(object),
        text(object, &["spec", "controller"]),
        parameters.into(),
        object_age(object, now),
    ]
}
