//! Columns of HorizontalPodAutoscalers in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, UNKNOWN, int, int_or_string, name, object_age};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
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
