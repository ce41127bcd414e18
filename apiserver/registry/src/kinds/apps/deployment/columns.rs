//! Columns of Deployments in a Table.

use crate::kinds::apps::columns::template;
use crate::shared::columns::Cell;
use crate::shared::columns::format::{int, name, object_age, selector};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = template(object);
    let desired = int(object, &["spec", "replicas"]);
    vec![
        name(object),
        format!("{}/{desired}", int(object, &["status", "readyReplicas"])).into(),
        int(object, &["status", "updatedReplicas"]).into(),
        int(object, &["status", "availableReplicas"]).into(),
        object_age(object, now),
        names.into(),
        images.into(),
        selector(object.at(&["spec", "selector"])).into(),
    ]
}
