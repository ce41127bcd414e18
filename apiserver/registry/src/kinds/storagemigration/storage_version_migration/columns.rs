//! Columns of StorageVersionMigrations in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::name;
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let resource = object.at(&["spec", "resource"]);
    let field = |name: &str| resource.map_or("", |own| own.str(name));
    let shown = match field("group") {
        "" => field("resource").to_owned(),
        group => format!("{}.{group}", field("resource")),
    };
    let conditions = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let status = conditions
        .filter(|c| c.str("status") == "True")
        .map(|c| c.str("type"))
        .next_back()
        .unwrap_or("Unknown");
    vec![name(object), shown.into(), status.into()]
}
