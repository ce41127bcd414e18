//! Columns of Nodes in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, UNKNOWN, condition, name, object_age, or, text};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let info = |field: &str| or(object.str_at(&["status", "nodeInfo", field]), UNKNOWN).into();
    let address = |kind: &str| -> Cell {
        let mut all = object
            .get("status")
            .into_iter()
            .flat_map(|status| status.list("addresses"));
        all.find(|a| a.str("type") == kind)
            .map_or(NONE, |a| a.str("address"))
            .into()
    };
    vec![
        name(object),
        node_status(object).into(),
        node_roles(object).into(),
        object_age(object, now),
        text(object, &["status", "nodeInfo", "kubeletVersion"]),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel(object).into(),
        info("containerRuntimeVersion"),
    ]
}

/// The kernel, and the machine it is for where that is known.
fn kernel(object: Ref<'_>) -> String {
    let info = |field: &str| object.str_at(&["status", "nodeInfo", field]);
    let kernel = or(info("kernelVersion"), UNKNOWN);
    match info("architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    }
}

fn node_status(object: Ref<'_>) -> String {
    let ready = condition(object, "Ready");
    let mut words = vec![match ready.map(|c| c.str("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if object.at(&["spec", "unschedulable"]).and_then(Ref::as_bool) == Some(true) {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn node_roles(object: Ref<'_>) -> String {
    let mut roles: Vec<&str> = object
        .at(&["metadata", "labels"])
        .into_iter()
        .flat_map(Ref::entries)
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some("") => None,
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str().filter(|role| !role.is_empty()),
                None => None,
            },
        )
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() {
        NONE.into()
    } else {
        roles.join(",")
    }
}
