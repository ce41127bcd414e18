//! Columns of PersistentVolumes in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{UNSET, name, object_age, or, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let claim = object.at(&["spec", "claimRef"]);
    let claim = claim.map_or_else(String::new, |c| {
        format!("{}/{}", c.str("namespace"), c.str("name"))
    });
    let deleting = !object.str_at(&["metadata", "deletionTimestamp"]).is_empty();
    let phase = if deleting {
        "Terminating"
    } else {
        object.str_at(&["status", "phase"])
    };
    vec![
        name(object),
        text(object, &["spec", "capacity", "storage"]),
        access_modes(object.at(&["spec", "accessModes"])).into(),
        text(object, &["spec", "persistentVolumeReclaimPolicy"]),
        phase.into(),
        claim.into(),
        storage_class(object).into(),
        or(object.str_at(&["spec", "volumeAttributesClassName"]), UNSET).into(),
        text(object, &["status", "reason"]),
        object_age(object, now),
        or(object.str_at(&["spec", "volumeMode"]), UNSET).into(),
    ]
}

/// `RWO,ROX`.
pub(in crate::kinds::core) fn access_modes(object: Option<Ref<'_>>) -> String {
    let mut modes: Vec<&str> = object
        .into_iter()
        .flat_map(Ref::items)
        .filter_map(Ref::as_str)
        .collect();
    modes.dedup();
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let known = short
        .iter()
        .filter(|(long, _)| modes.contains(long))
        .map(|(_, short)| *short);
    known.collect::<Vec<_>>().join(",")
}

/// The class of a volume or claim, by its field or the annotation from before.
pub(in crate::kinds::core) fn storage_class<'a>(object: Ref<'a>) -> &'a str {
    let annotated = object.str_at(&[
        "metadata",
        "annotations",
        "volume.beta.kubernetes.io/storage-class",
    ]);
    or(annotated, object.str_at(&["spec", "storageClassName"]))
}
