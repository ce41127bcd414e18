//! HorizontalPodAutoscaler: stored as `autoscaling/v2`; `v1` shows its CPU target as a number of its own.

pub(crate) mod validation;

use crate::row::Conversion;
use machinery_schema::{Mut, Ref, Schema, Step, Strictness, Tree, TypeId, Value, decode_json};
use std::sync::Arc;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HpaConversion;

const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn is_cpu_utilization(metric: Ref<'_>) -> bool {
    metric.str("type") == "Resource"
        && metric.str_at(&["resource", "name"]) == "cpu"
        && metric.at(&["resource", "target", "averageUtilization"]).is_some()
}

fn copy_shared(object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
    let mut out = Tree::new(schema, ty);
    for member in ["kind", "metadata"] {
        if let Some(value) = object.get(member) {
            out.set(&[Step::Name(member)], value);
        }
    }
    let shared = [
        ("spec", &["scaleTargetRef", "minReplicas", "maxReplicas"][..]),
        (
            "status",
            &[
                "observedGeneration",
                "lastScaleTime",
                "currentReplicas",
                "desiredReplicas",
            ][..],
        ),
    ];
    for (part, fields) in shared {
        for field in fields {
            if let Some(value) = object.at(&[part, field]) {
                out.set(&[Step::Name(part), Step::Name(field)], value);
            }
        }
    }
    out
}

impl Conversion for HpaConversion {
    fn to_served(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        let mut out = copy_shared(object, schema, ty);
        let metrics = || {
            object
                .get("spec")
                .into_iter()
                .flat_map(|spec| spec.list("metrics"))
        };
        if let Some(cpu) = metrics().find(|metric| is_cpu_utilization(*metric))
            && let Some(value) = cpu.at(&["resource", "target", "averageUtilization"])
        {
            out.set(
                &[Step::Name("spec"), Step::Name("targetCPUUtilizationPercentage")],
                value,
            );
        }
        let others: Vec<String> = metrics()
            .filter(|metric| !is_cpu_utilization(*metric))
            .map(Ref::to_json)
            .collect();
        if !others.is_empty() {
            let text = format!("[{}]", others.join(","));
            out.set_str(&["metadata", "annotations", METRICS_ANNOTATION], &text);
        }
        if let Some(behavior) = object.at(&["spec", "behavior"]) {
            out.set_str(
                &["metadata", "annotations", BEHAVIOR_ANNOTATION],
                &behavior.to_json(),
            );
        }
        normal(out)
    }

    fn to_stored(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        let mut out = copy_shared(object, schema, ty);
        if let Some(target) = object.at(&["spec", "targetCPUUtilizationPercentage"]) {
            out.with(&["spec"], |mut spec| push_cpu_metric(&mut spec, target));
        }
        let annotation = |name: &str| Tree::from_json(object.str_at(&["metadata", "annotations", name])).ok();
        if let Some(others) = annotation(METRICS_ANNOTATION) {
            for metric in others.root().items() {
                out.push(&["spec", "metrics"], metric);
            }
        }
        if let Some(behavior) = annotation(BEHAVIOR_ANNOTATION) {
            out.set(&[Step::Name("spec"), Step::Name("behavior")], behavior.root());
        }
        for name in [METRICS_ANNOTATION, BEHAVIOR_ANNOTATION] {
            out.remove(&["metadata", "annotations", name]);
        }
        out.with(&["metadata"], |mut meta| meta.prune_empty("annotations"));
        normal(out)
    }
}

/// What reading it again would give: the versions leave out different zero values.
fn normal(object: Tree) -> Tree {
    let text = object.root().to_json();
    match decode_json(object.schema(), object.ty(), text.as_bytes(), Strictness::Ignore) {
        Ok(decoded) => decoded.tree,
        Err(_) => object,
    }
}

fn push_cpu_metric(spec: &mut Mut<'_>, target: Ref<'_>) {
    let mut metrics = spec.entry("metrics");
    let mut metric = metrics.push(Value::EmptyMap);
    metric.set("type", "Resource");
    let mut resource = metric.entry("resource");
    resource.set("name", "cpu");
    let mut wanted = resource.entry("target");
    wanted.set("type", "Utilization");
    wanted.set("averageUtilization", target);
}
