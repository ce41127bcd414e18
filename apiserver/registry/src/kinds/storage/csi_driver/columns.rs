//! Columns of CSIDrivers in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, UNSET, flag, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let texts = |field: &str| -> Vec<&str> {
        object
            .get("spec")
            .into_iter()
            .flat_map(|spec| spec.list(field))
            .filter_map(Ref::as_str)
            .collect()
    };
    let requests: Vec<&str> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("tokenRequests"))
        .map(|request| request.str("audience"))
        .collect();
    let modes = texts("volumeLifecycleModes");
    vec![
        name(object),
        flag(object, &["spec", "attachRequired"], true),
        flag(object, &["spec", "podInfoOnMount"], false),
        flag(object, &["spec", "storageCapacity"], false),
        if requests.is_empty() {
            UNSET.into()
        } else {
            requests.join(",").into()
        },
        flag(object, &["spec", "requiresRepublish"], false),
        if modes.is_empty() {
            NONE.into()
        } else {
            modes.join(",").into()
        },
        object_age(object, now),
    ]
}
