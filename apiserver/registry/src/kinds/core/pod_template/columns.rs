//! Columns of PodTemplates in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{containers, labels, name};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let (names, images) = containers(object.at(&["template", "spec"]));
    vec![
        name(object),
        names.into(),
        images.into(),
        labels(object.at(&["template", "metadata", "labels"])).into(),
    ]
}
