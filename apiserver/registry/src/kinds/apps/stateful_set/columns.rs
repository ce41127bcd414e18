//! Columns of StatefulSets in a Table.

use crate::kinds::apps::columns::template;
use crate::shared::columns::Cell;
use crate::shared::columns::format::{int, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = template(object);
    let ready = int(object, &["status", "readyReplicas"]);
    vec![
        name(object),
        format!("{ready}/{}", int(object, &["spec", "replicas"])).into(),
        object_age(object, now),
        names.into(),
        images.into(),
    ]
}
