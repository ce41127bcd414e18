//! RBAC, disruption budgets, priorities, autoscaling.

use super::format::{NONE, UNKNOWN, int, int_or_string, name, object_age, text};
use super::{Cell, KindCells};
use jiff::Timestamp;
use machinery_schema::Ref;

pub(super) fn cells(group: &str, plural: &str) -> Option<KindCells> {
    Some(match (group, plural) {
        ("policy", "poddisruptionbudgets") => budget,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding,
        ("scheduling.k8s.io", "priorityclasses") => priority_class,
        ("autoscaling", "horizontalpodautoscalers") => autoscaler,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow_schema,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => priority_level,
        _ => return None,
    })
}

/// The sort key of objects in a list, for kinds that are not sorted by name.
pub(super) fn order(group: &str, plural: &str) -> Option<fn(Ref<'_>) -> i64> {
    let precedence = |schema: Ref<'_>| int(schema, &["spec", "matchingPrecedence"]);
    (group == "flowcontrol.apiserver.k8s.io" && plural == "flowschemas").then_some(precedence as _)
}

fn budget(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let bound = |field: &str| {
        object
            .at(&["spec", field])
            .map_or_else(|| "N/A".to_owned(), int_or_string)
    };
    vec![
        name(object),
        bound("minAvailable").into(),
        bound("maxUnavailable").into(),
        int(object, &["status", "disruptionsAllowed"]).into(),
        object_age(object, now),
    ]
}

fn binding(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let role = format!(
        "{}/{}",
        object.str_at(&["roleRef", "kind"]),
        object.str_at(&["roleRef", "name"])
    );
    let of = |kind: &str| {
        let own = object
            .list("subjects")
            .filter(|subject| subject.str("kind") == kind);
        own.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", subject.str("namespace"), subject.str("name")),
            _ => subject.str("name").to_owned(),
        })
        .collect::<Vec<_>>()
        .join(", ")
    };
    vec![
        name(object),
        role.into(),
        object_age(object, now),
        of("User").into(),
        of("Group").into(),
        of("ServiceAccount").into(),
    ]
}

fn priority_class(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        int(object, &["value"]).into(),
        (object.get("globalDefault").and_then(Ref::as_bool) == Some(true)).into(),
        object_age(object, now),
        text(object, &["preemptionPolicy"]),
    ]
}

fn autoscaler(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let target = object.at(&["spec", "scaleTargetRef"]);
    let field = |name: &str| target.map_or("", |own| own.str(name));
    let number = |path: &[&str]| object.at(path).and_then(Ref::as_i64);
    vec![
        name(object),
        format!("{}/{}", field("kind"), field("name")).into(),
        targets(object).into(),
        number(&["spec", "minReplicas"])
            .map_or_else(|| "<unset>".to_owned(), |n| n.to_string())
            .into(),
        int(object, &["spec", "maxReplicas"]).into(),
        int(object, &["status", "currentReplicas"]).into(),
        object_age(object, now),
    ]
}

/// `cpu: 10%/80%` for resource metrics, of either version.
fn targets(object: Ref<'_>) -> String {
    if let Some(target) = object
        .at(&["spec", "targetCPUUtilizationPercentage"])
        .and_then(Ref::as_i64)
    {
        let current = object
            .at(&["status", "currentCPUUtilizationPercentage"])
            .and_then(Ref::as_i64);
        let current = current.map_or_else(|| UNKNOWN.to_owned(), |own| format!("{own}%"));
        return format!("cpu: {current}/{target}%");
    }
    let metrics: Vec<Ref<'_>> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("metrics"))
        .collect();
    if metrics.is_empty() {
        return NONE.into();
    }
    let status: Vec<Ref<'_>> = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("currentMetrics"))
        .collect();
    let shown = metrics
        .iter()
        .take(2)
        .enumerate()
        .map(|(at, metric)| target_of(*metric, status.get(at).copied()));
    let text = shown.collect::<Vec<_>>().join(", ");
    if metrics.len() > 2 {
        format!("{text} + {} more...", metrics.len() - 2)
    } else {
        text
    }
}

fn target_of(metric: Ref<'_>, status: Option<Ref<'_>>) -> String {
    let source = match metric.str("type") {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        _ => "external",
    };
    let label = match source {
        "resource" | "containerResource" => format!("{}: ", metric.str_at(&[source, "name"])),
        _ => String::new(),
    };
    let value = |field: &str| metric.at(&[source, "target", field]).map(int_or_string);
    let now = |field: &str| {
        status
            .and_then(|own| own.at(&[source, "current", field]))
            .map(int_or_string)
    };
    if let Some(percent) = value("averageUtilization") {
        let current = now("averageUtilization").map_or_else(|| UNKNOWN.to_owned(), |own| format!("{own}%"));
        return format!("{label}{current}/{percent}%");
    }
    let (field, suffix) = if value("averageValue").is_some() {
        ("averageValue", " (avg)")
    } else {
        ("value", "")
    };
    let suffix = if source == "external" || source == "object" {
        suffix
    } else {
        ""
    };
    let current = now(field).unwrap_or_else(|| UNKNOWN.to_owned());
    format!("{label}{current}/{}{suffix}", value(field).unwrap_or_default())
}

fn flow_schema(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let conditions = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let missing = conditions
        .into_iter()
        .find(|c| c.str("type") == "Dangling")
        .map_or("?", |c| c.str("status"));
    let method = object
        .at(&["spec", "distinguisherMethod", "type"])
        .and_then(Ref::as_str)
        .unwrap_or(NONE);
    vec![
        name(object),
        text(object, &["spec", "priorityLevelConfiguration", "name"]),
        int(object, &["spec", "matchingPrecedence"]).into(),
        method.into(),
        object_age(object, now),
        missing.into(),
    ]
}

fn priority_level(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let number = |path: &[&str]| -> Cell {
        object
            .at(path)
            .and_then(Ref::as_i64)
            .map_or_else(|| NONE.into(), Cell::Int)
    };
    let queuing = ["spec", "limited", "limitResponse", "queuing"];
    let of_queue = |field: &'static str| number(&[queuing[0], queuing[1], queuing[2], queuing[3], field]);
    vec![
        name(object),
        text(object, &["spec", "type"]),
        number(&["spec", "limited", "nominalConcurrencyShares"]),
        of_queue("queues"),
        of_queue("handSize"),
        of_queue("queueLengthLimit"),
        object_age(object, now),
    ]
}
