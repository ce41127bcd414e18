//! Conversion of HorizontalPodAutoscalers: stored as `autoscaling/v2`; `v1` shows its CPU target as a number of its own.

use super::annotations;
use crate::engine::conversion::Conversion;
use machinery_schema::{Mut, Ref, Schema, Step, Strictness, Tree, TypeId, Value, decode_json};
use std::sync::Arc;

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HpaConversion;

/// An object of `v1` as it is stored; `None` for one of another version.
pub(super) fn stored_form(object: Ref<'_>) -> Option<Tree> {
    if object.str("apiVersion") != "autoscaling/v1" {
        return None;
    }
    let (schema, ty) = machinery_api::schema_for("autoscaling", "v2", "HorizontalPodAutoscaler")?;
    Some(HpaConversion.to_stored(&object.to_tree(), schema, ty))
}

/// Target utilization if none is set, in percent of the pods' requests.
const DEFAULT_CPU: i64 = 80;

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
        let measured = object
            .at(&["status", "currentMetrics"])
            .into_iter()
            .flat_map(Ref::items);
        let mut measured = measured.filter(|metric| metric.str_at(&["resource", "name"]) == "cpu");
        if let Some(value) =
            measured.find_map(|metric| metric.at(&["resource", "current", "averageUtilization"]))
        {
            out.set(
                &[
                    Step::Name("status"),
                    Step::Name("currentCPUUtilizationPercentage"),
                ],
                value,
            );
        }
        annotations::write(object, &mut out, |metric| !is_cpu_utilization(metric));
        normal(out)
    }

    fn to_stored(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree {
        let mut out = copy_shared(object, schema, ty);
        if let Some(value) = object.at(&["status", "currentCPUUtilizationPercentage"]) {
            out.with(&["status"], |mut status| {
                push_cpu(&mut status, "currentMetrics", "current", value)
            });
        }
        annotations::read(object, &mut out);
        super::defaults::behavior(&mut out);
        let target = object
            .at(&["spec", "targetCPUUtilizationPercentage"])
            .filter(|own| !own.is_null());
        if let Some(target) = target {
            out.with(&["spec"], |mut spec| {
                push_cpu(&mut spec, "metrics", "target", target)
            });
        } else if out
            .at(&["spec", "metrics"])
            .is_none_or(|metrics| metrics.is_empty())
        {
            out.with(&["spec"], |mut spec| {
                push_cpu(&mut spec, "metrics", "target", DEFAULT_CPU)
            });
        }
        normal(out)
    }
}

/// The normal form of the object, as decoding would give it: the versions leave out different zero values.
fn normal(object: Tree) -> Tree {
    let text = object.root().to_json();
    match decode_json(object.schema(), object.ty(), text.as_bytes(), Strictness::Ignore) {
        Ok(decoded) => decoded.tree,
        Err(_) => object,
    }
}

/// A metric of the CPU that pods use, of those wanted or those measured.
fn push_cpu<'v>(owner: &mut Mut<'_>, list: &str, member: &str, utilization: impl Into<Value<'v>>) {
    let mut metrics = owner.entry(list);
    let mut metric = metrics.push(Value::EmptyMap);
    metric.set("type", "Resource");
    let mut resource = metric.entry("resource");
    resource.set("name", "cpu");
    let mut amount = resource.entry(member);
    if member == "target" {
        amount.set("type", "Utilization");
    }
    amount.set("averageUtilization", utilization);
}
