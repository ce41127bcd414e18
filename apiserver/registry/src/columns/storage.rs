//! Storage, nodes' runtimes, leases.

use super::core::name_and_age;
use super::format::{NONE, UNSET, name, object_age, or, text};
use super::{Cell, KindCells};
use jiff::Timestamp;
use machinery_schema::Ref;

pub(super) fn cells(group: &str, plural: &str) -> Option<KindCells> {
    Some(match (group, plural) {
        ("storage.k8s.io", "csidrivers") => csi_driver,
        ("storage.k8s.io", "csinodes") => csi_node,
        ("storage.k8s.io", "storageclasses") => storage_class,
        ("storage.k8s.io", "volumeattachments") => attachment,
        ("storage.k8s.io", "volumeattributesclasses") => attributes_class,
        ("node.k8s.io", "runtimeclasses") => runtime_class,
        ("coordination.k8s.io", "leases") => lease,
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => name_and_age,
        ("resource.k8s.io", "resourceclaims") => claim,
        ("resource.k8s.io", "resourceslices") => slice,
        ("resource.k8s.io", "devicetaintrules") => taint_rule,
        ("storagemigration.k8s.io", "storageversionmigrations") => migration,
        _ => return None,
    })
}

fn flag(object: Ref<'_>, path: &[&str], absent: bool) -> Cell {
    object.at(path).and_then(Ref::as_bool).unwrap_or(absent).into()
}

fn csi_driver(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let texts = |field: &str| -> Vec<&str> {
        object
            .get("spec")
            .into_iter()
            .flat_map(|spec| spec.list(field))
            .filter_map(Ref::as_str)
            .collect()
    };
    let requests: Vec<&str> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("tokenRequests"))
        .map(|request| request.str("audience"))
        .collect();
    let modes = texts("volumeLifecycleModes");
    vec![
        name(object),
        flag(object, &["spec", "attachRequired"], true),
        flag(object, &["spec", "podInfoOnMount"], false),
        flag(object, &["spec", "storageCapacity"], false),
        if requests.is_empty() {
            UNSET.into()
        } else {
            requests.join(",").into()
        },
        flag(object, &["spec", "requiresRepublish"], false),
        if modes.is_empty() {
            NONE.into()
        } else {
            modes.join(",").into()
        },
        object_age(object, now),
    ]
}

fn csi_node(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let drivers = object.at(&["spec", "drivers"]).map_or(0, Ref::len);
    vec![
        name(object),
        Cell::Int(i64::try_from(drivers).unwrap_or(0)),
        object_age(object, now),
    ]
}

fn storage_class(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let own = object.str_at(&["metadata", "name"]);
    let annotated = |key: &str| object.str_at(&["metadata", "annotations", key]) == "true";
    let default = annotated("storageclass.kubernetes.io/is-default-class")
        || annotated("storageclass.beta.kubernetes.io/is-default-class");
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

fn attachment(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        text(object, &["spec", "attacher"]),
        text(object, &["spec", "source", "persistentVolumeName"]),
        text(object, &["spec", "nodeName"]),
        flag(object, &["status", "attached"], false),
        object_age(object, now),
    ]
}

fn attributes_class(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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

fn runtime_class(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![name(object), text(object, &["handler"]), object_age(object, now)]
}

fn lease(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        text(object, &["spec", "holderIdentity"]),
        object_age(object, now),
    ]
}

fn claim(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let mut states: Vec<&str> = Vec::new();
    if !object.str_at(&["metadata", "deletionTimestamp"]).is_empty() {
        states.push("deleted");
    }
    if object.at(&["status", "allocation"]).is_none() {
        states.push("pending");
    } else {
        states.push("allocated");
        if object
            .at(&["status", "reservedFor"])
            .is_some_and(|list| !list.is_empty())
        {
            states.push("reserved");
        }
    }
    vec![name(object), states.join(",").into(), object_age(object, now)]
}

fn slice(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        text(object, &["spec", "nodeName"]),
        text(object, &["spec", "driver"]),
        text(object, &["spec", "pool", "name"]),
        object_age(object, now),
    ]
}

fn taint_rule(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let taint = |field: &str| text(object, &["spec", "taint", field]);
    vec![
        name(object),
        taint("key"),
        taint("value"),
        taint("effect"),
        super::age(object.str_at(&["spec", "taint", "timeAdded"]), now).into(),
        object_age(object, now),
    ]
}

fn migration(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let resource = object.at(&["spec", "resource"]);
    let field = |name: &str| resource.map_or("", |own| own.str(name));
    let shown = match field("group") {
        "" => field("resource").to_owned(),
        group => format!("{}.{group}", field("resource")),
    };
    let conditions = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let status = conditions
        .filter(|c| c.str("status") == "True")
        .map(|c| c.str("type"))
        .next_back()
        .unwrap_or("Unknown");
    vec![name(object), shown.into(), status.into()]
}
