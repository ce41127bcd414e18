//! Columns of IPAddresses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::name;
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let parent = object.at(&["spec", "parentRef"]);
    let field = |name: &str| parent.map_or("", |own| own.str(name));
    let resource = match field("group") {
        "" => field("resource").to_owned(),
        group => format!("{}.{group}", field("resource")),
    };
    let parts = [resource.as_str(), field("namespace"), field("name")];
    let shown: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    vec![name(object), shown.join("/").into()]
}
