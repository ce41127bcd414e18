//! Columns of VolumeAttributesClasses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{object_age, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let own = object.str_at(&["metadata", "name"]);
    let default = object.str_at(&[
        "metadata",
        "annotations",
        "volumeattributesclass.kubernetes.io/is-default-class",
    ]);
    vec![
        if default == "true" {
            format!("{own} (default)").into()
        } else {
            own.into()
        },
        text(object, &["driverName"]),
        object_age(object, now),
    ]
}
