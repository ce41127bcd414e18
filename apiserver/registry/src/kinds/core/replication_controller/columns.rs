//! Columns of ReplicationControllers in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{containers, int, labels, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = containers(object.at(&["spec", "template", "spec"]));
    vec![
        name(object),
        int(object, &["spec", "replicas"]).into(),
        int(object, &["status", "replicas"]).into(),
        int(object, &["status", "readyReplicas"]).into(),
        object_age(object, now),
        names.into(),
        images.into(),
        labels(object.at(&["spec", "selector"])).into(),
    ]
}
