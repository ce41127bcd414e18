//! Columns of EndpointSlices in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{UNSET, first_then_more, name, object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let ports: Vec<String> = object
        .list("ports")
        .map(
            |port| match (port.get("port").and_then(Ref::as_i64), port.str("name")) {
                (Some(number), _) => number.to_string(),
                (None, "") => "*".to_owned(),
                (None, name) => name.to_owned(),
            },
        )
        .collect();
    let endpoints: Vec<String> = object
        .list("endpoints")
        .flat_map(|endpoint| endpoint.list("addresses"))
        .filter_map(Ref::as_str)
        .map(str::to_owned)
        .collect();
    let all = |list: &[String]| {
        if list.is_empty() {
            UNSET.to_owned()
        } else {
            first_then_more(list, 3)
        }
    };
    vec![
        name(object),
        text(object, &["addressType"]),
        all(&ports).into(),
        all(&endpoints).into(),
        object_age(object, now),
    ]
}
