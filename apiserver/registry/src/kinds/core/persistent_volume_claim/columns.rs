//! Columns of PersistentVolumeClaims in a Table.

use crate::kinds::core::persistent_volume::columns::{access_modes, storage_class};
use crate::shared::columns::Cell;
use crate::shared::columns::format::{UNSET, name, object_age, or, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let bound = !object.str_at(&["spec", "volumeName"]).is_empty();
    let deleting = !object.str_at(&["metadata", "deletionTimestamp"]).is_empty();
    let phase = if deleting {
        "Terminating"
    } else {
        object.str_at(&["status", "phase"])
    };
    let (mut capacity, mut modes) = (String::new(), String::new());
    if bound {
        modes = access_modes(object.at(&["status", "accessModes"]));
        or(object.str_at(&["status", "capacity", "storage"]), "0").clone_into(&mut capacity);
    }
    vec![
        name(object),
        phase.into(),
        text(object, &["spec", "volumeName"]),
        capacity.into(),
        modes.into(),
        storage_class(object).into(),
        or(object.str_at(&["spec", "volumeAttributesClassName"]), UNSET).into(),
        object_age(object, now),
        or(object.str_at(&["spec", "volumeMode"]), UNSET).into(),
    ]
}
