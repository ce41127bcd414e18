//! Columns of StorageClasses in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{object_age, or, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let own = object.str_at(&["metadata", "name"]);
    // The annotation of beta makes a default, too, but is not shown.
    let annotation = [
        "metadata",
        "annotations",
        "storageclass.kubernetes.io/is-default-class",
    ];
    let default = object.str_at(&annotation) == "true";
    let expands = object.get("allowVolumeExpansion").and_then(Ref::as_bool) == Some(true);
    vec![
        if default {
            format!("{own} (default)").into()
        } else {
            own.into()
        },
        text(object, &["provisioner"]),
        or(object.str("reclaimPolicy"), "Delete").into(),
        or(object.str("volumeBindingMode"), "Immediate").into(),
        expands.into(),
        object_age(object, now),
    ]
}
