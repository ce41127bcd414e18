//! Columns of ControllerRevisions in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, int, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let mut owners = object
        .get("metadata")
        .into_iter()
        .flat_map(|m| m.list("ownerReferences"));
    let controller = owners.find(|o| o.get("controller").and_then(Ref::as_bool) == Some(true));
    let controller = controller.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let kind = owner.str("kind").to_lowercase();
            match owner.str("apiVersion").split_once('/') {
                Some((group, _)) => format!("{kind}.{group}/{}", owner.str("name")),
                None => format!("{kind}/{}", owner.str("name")),
            }
        },
    );
    vec![
        name(object),
        controller.into(),
        int(object, &["revision"]).into(),
        object_age(object, now),
    ]
}
