//! Columns of DaemonSets in a Table.

use crate::kinds::apps::columns::template;
use crate::shared::columns::Cell;
use crate::shared::columns::format::{int, labels, name, object_age, selector};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = template(object);
    vec![
        name(object),
        int(object, &["status", "desiredNumberScheduled"]).into(),
        int(object, &["status", "currentNumberScheduled"]).into(),
        int(object, &["status", "numberReady"]).into(),
        int(object, &["status", "updatedNumberScheduled"]).into(),
        int(object, &["status", "numberAvailable"]).into(),
        labels(object.at(&["spec", "template", "spec", "nodeSelector"])).into(),
        object_age(object, now),
        names.into(),
        images.into(),
        selector(object.at(&["spec", "selector"])).into(),
    ]
}
