//! Columns of ServiceCIDRs in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let cidrs: Vec<&str> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("cidrs"))
        .filter_map(Ref::as_str)
        .collect();
    vec![name(object), cidrs.join(",").into(), object_age(object, now)]
}
