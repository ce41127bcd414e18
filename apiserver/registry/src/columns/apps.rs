//! Workloads of the apps group.

use super::format::{NONE, containers, int, labels, name, object_age, selector};
use super::{Cell, Column, Columns, KindCells, created_description, name_header};
use jiff::Timestamp;
use machinery_schema::Ref;

pub(super) fn cells(group: &str, plural: &str) -> Option<KindCells> {
    if group != "apps" {
        return None;
    }
    Some(match plural {
        "deployments" => deployment,
        "replicasets" => replica_set,
        "statefulsets" => stateful_set,
        "daemonsets" => daemon_set,
        "controllerrevisions" => controller_revision,
        _ => return None,
    })
}

/// Columns of `scale`, the same for every kind.
pub(super) fn scale() -> Columns {
    let header = |name: &str, kind: &str, description| Column {
        name: name.into(),
        kind: kind.into(),
        description,
        ..Column::default()
    };
    let headers = vec![
        header("Name", "string", name_header().description),
        header(
            "Desired",
            "integer",
            "replicas is the desired number of instances for the scaled object.".into(),
        ),
        header(
            "Available",
            "integer",
            "replicas is the actual number of observed instances of the scaled object.".into(),
        ),
        header("Age", "string", created_description()),
    ];
    Columns::new(headers, |scale, now| {
        vec![
            name(scale),
            int(scale, &["spec", "replicas"]).into(),
            int(scale, &["status", "replicas"]).into(),
            object_age(scale, now),
        ]
    })
}

fn template(object: Ref<'_>) -> (String, String) {
    containers(object.at(&["spec", "template", "spec"]))
}

fn deployment(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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

fn replica_set(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = template(object);
    vec![
        name(object),
        int(object, &["spec", "replicas"]).into(),
        int(object, &["status", "replicas"]).into(),
        int(object, &["status", "readyReplicas"]).into(),
        object_age(object, now),
        names.into(),
        images.into(),
        selector(object.at(&["spec", "selector"])).into(),
    ]
}

fn stateful_set(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let (names, images) = template(object);
    let ready = int(object, &["status", "readyReplicas"]);
    vec![
        name(object),
        format!("{ready}/{}", int(object, &["spec", "replicas"])).into(),
        object_age(object, now),
        names.into(),
        images.into(),
    ]
}

fn daemon_set(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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

fn controller_revision(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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
