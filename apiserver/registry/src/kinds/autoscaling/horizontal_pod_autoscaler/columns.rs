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

/// `cpu: 10%/80%` for resource metrics; one of `v1` shows those that it is stored with.
fn targets(object: Ref<'_>) -> String {
    match super::conversion::stored_form(object) {
        Some(stored) => stored_targets(stored.root()),
        None => stored_targets(object),
    }
}

fn stored_targets(object: Ref<'_>) -> String {
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
        .map(|(at, metric)| target_of(*metric, current_of(*metric, at, &status)));
    let text = shown.collect::<Vec<_>>().join(", ");
    if metrics.len() > 2 {
        format!("{text} + {} more...", metrics.len() - 2)
    } else {
        text
    }
}

/// The status of a metric: the one in its place, but for `v1`, which may have lost the order.
fn current_of<'a>(metric: Ref<'_>, at: usize, status: &[Ref<'a>]) -> Option<Ref<'a>> {
    let is_same = |own: &Ref<'a>| {
        let kind = own.str("type");
        kind == metric.str("type") && measured(*own, kind) == measured(metric, kind)
    };
    let own = status.get(at).copied();
    own.filter(is_same)
        .or_else(|| status.iter().copied().find(is_same))
        .or(own)
}

/// The name of what is measured.
fn measured<'a>(metric: Ref<'a>, kind: &str) -> &'a str {
    let source = member_of(kind);
    match source {
        "resource" | "containerResource" => metric.str_at(&[source, "name"]),
        _ => metric.str_at(&[source, "metric", "name"]),
    }
}

fn member_of(kind: &str) -> &'static str {
    match kind {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        _ => "external",
    }
}

fn target_of(metric: Ref<'_>, status: Option<Ref<'_>>) -> String {
    let source = member_of(metric.str("type"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::Tree;
    use serde_json::json;

    #[test]
    fn first_version_shows_all_metrics() {
        let metrics =
            json!([{"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}]);
        let current = json!([
            {"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": 33, "currentAverageValue": "1"}},
            {"type": "Resource", "resource": {"name": "memory", "currentAverageValue": "512Mi"}},
        ]);
        let autoscaler = json!({
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "annotations": {
                "autoscaling.alpha.kubernetes.io/metrics": metrics.to_string(),
                "autoscaling.alpha.kubernetes.io/current-metrics": current.to_string(),
            }},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
            "status": {"currentCPUUtilizationPercentage": 33},
        });
        let tree = Tree::from_json(&autoscaler.to_string()).unwrap();
        let shown = targets(tree.root());
        assert!(shown.contains("memory: 512Mi/1Gi"), "{shown}");
        assert!(shown.contains("cpu: 33%/50%"), "{shown}");
    }
}
