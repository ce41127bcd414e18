//! Annotations of `autoscaling/v1` for the fields that it lacks: metrics and current metrics in v1's form,
//! conditions, and the behavior in the form of upstream's internal type.

use machinery_meta::Quantity;
use machinery_schema::{Kind, Ref, Step, Strictness, Tree, decode_json};
use serde_json::{Map, Value};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ALL: [&str; 4] = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR];

/// A field of v1 and where v2 has it; `zero` is written where there is none.
struct Field {
    name: &'static str,
    path: &'static [&'static str],
    zero: Option<&'static str>,
}

const fn field(name: &'static str, path: &'static [&'static str]) -> Field {
    Field {
        name,
        path,
        zero: None,
    }
}

const fn always(name: &'static str, path: &'static [&'static str]) -> Field {
    Field {
        name,
        path,
        zero: Some("\"0\""),
    }
}

/// A kind of metric: its member, and its fields in v1's order.
struct Form {
    member: &'static str,
    fields: &'static [Field],
}

const WANTED: [Form; 5] = [
    Form {
        member: "object",
        fields: &[
            field("target", &["describedObject"]),
            field("metricName", &["metric", "name"]),
            always("targetValue", &["target", "value"]),
            field("selector", &["metric", "selector"]),
            field("averageValue", &["target", "averageValue"]),
        ],
    },
    Form {
        member: "pods",
        fields: &[
            field("metricName", &["metric", "name"]),
            always("targetAverageValue", &["target", "averageValue"]),
            field("selector", &["metric", "selector"]),
        ],
    },
    Form {
        member: "resource",
        fields: &[
            field("name", &["name"]),
            field("targetAverageUtilization", &["target", "averageUtilization"]),
            field("targetAverageValue", &["target", "averageValue"]),
        ],
    },
    Form {
        member: "containerResource",
        fields: &[
            field("name", &["name"]),
            field("targetAverageUtilization", &["target", "averageUtilization"]),
            field("targetAverageValue", &["target", "averageValue"]),
            field("container", &["container"]),
        ],
    },
    Form {
        member: "external",
        fields: &[
            field("metricName", &["metric", "name"]),
            field("metricSelector", &["metric", "selector"]),
            field("targetValue", &["target", "value"]),
            field("targetAverageValue", &["target", "averageValue"]),
        ],
    },
];

const MEASURED: [Form; 5] = [
    Form {
        member: "object",
        fields: &[
            field("target", &["describedObject"]),
            field("metricName", &["metric", "name"]),
            always("currentValue", &["current", "value"]),
            field("selector", &["metric", "selector"]),
            field("averageValue", &["current", "averageValue"]),
        ],
    },
    Form {
        member: "pods",
        fields: &[
            field("metricName", &["metric", "name"]),
            always("currentAverageValue", &["current", "averageValue"]),
            field("selector", &["metric", "selector"]),
        ],
    },
    Form {
        member: "resource",
        fields: &[
            field("name", &["name"]),
            field("currentAverageUtilization", &["current", "averageUtilization"]),
            always("currentAverageValue", &["current", "averageValue"]),
        ],
    },
    Form {
        member: "containerResource",
        fields: &[
            field("name", &["name"]),
            field("currentAverageUtilization", &["current", "averageUtilization"]),
            always("currentAverageValue", &["current", "averageValue"]),
            field("container", &["container"]),
        ],
    },
    Form {
        member: "external",
        fields: &[
            field("metricName", &["metric", "name"]),
            field("metricSelector", &["metric", "selector"]),
            always("currentValue", &["current", "value"]),
            field("currentAverageValue", &["current", "averageValue"]),
        ],
    },
];

/// Writes what v1 has no fields for; of the metrics those that `is_other`.
pub(super) fn write(stored: &Tree, out: &mut Tree, is_other: impl Fn(Ref<'_>) -> bool) {
    clear(out);
    let list = |part: &str, name: &str| -> Vec<String> {
        let items = stored.at(&[part, name]).into_iter().flat_map(Ref::items);
        let items = items.filter(|item| name != "metrics" || is_other(*item));
        items
            .map(|item| match name {
                "metrics" => in_v1(item, &WANTED),
                "currentMetrics" => in_v1(item, &MEASURED),
                _ => item.to_json(),
            })
            .collect()
    };
    for (annotation, items) in [
        (METRICS, list("spec", "metrics")),
        (CURRENT_METRICS, list("status", "currentMetrics")),
        (CONDITIONS, list("status", "conditions")),
    ] {
        if !items.is_empty() {
            let text = format!("[{}]", items.join(","));
            out.set_str(&["metadata", "annotations", annotation], &text);
        }
    }
    if let Some(behavior) = stored.at(&["spec", "behavior"]).filter(|own| !own.is_null()) {
        out.set_str(&["metadata", "annotations", BEHAVIOR], &in_go(behavior));
    }
}

/// Reads it back: metrics first, as upstream puts them. An annotation that is not what it should be says nothing.
pub(super) fn read(served: &Tree, out: &mut Tree) {
    let text = |name: &str| served.str_at(&["metadata", "annotations", name]);
    read_list(out, text(METRICS), ["spec", "metrics"], |own| {
        in_v2(own, &WANTED, true)
    });
    read_list(out, text(CURRENT_METRICS), ["status", "currentMetrics"], |own| {
        in_v2(own, &MEASURED, false)
    });
    read_list(out, text(CONDITIONS), ["status", "conditions"], |own| {
        own.to_tree()
    });
    let behavior = serde_json::from_str(text(BEHAVIOR));
    if let Some(behavior) = behavior.ok().and_then(as_written)
        && let Ok(behavior) = Tree::from_json(&behavior.to_string())
    {
        let path = [Step::Name("spec"), Step::Name("behavior")];
        let mut own = Tree::untyped();
        own.set(&path, behavior.root());
        if is_readable(out, &own) {
            out.set(&path, behavior.root());
        }
    }
    clear(out);
}

/// Puts a list where it belongs, each item in the stored form.
fn read_list(out: &mut Tree, text: &str, path: [&str; 2], stored: impl Fn(Ref<'_>) -> Tree) {
    let Some(list) = Tree::from_json(text)
        .ok()
        .filter(|own| own.root().kind() == Kind::List)
    else {
        return;
    };
    let mut own = Tree::untyped();
    for item in list.root().items() {
        own.push(&path, stored(item).root());
    }
    if !is_readable(out, &own) {
        return;
    }
    if path[1] == "currentMetrics" {
        out.remove(&path);
    }
    for item in own.at(&path).into_iter().flat_map(Ref::items) {
        out.push(&path, item);
    }
}

/// Reports whether a part fits the object's type: a part that does not would be stored and never read again.
fn is_readable(object: &Tree, part: &Tree) -> bool {
    let text = part.root().to_json();
    decode_json(object.schema(), object.ty(), text.as_bytes(), Strictness::Ignore).is_ok()
}

fn clear(object: &mut Tree) {
    for name in ALL {
        object.remove(&["metadata", "annotations", name]);
    }
    object.with(&["metadata"], |mut meta| meta.prune_empty("annotations"));
}

fn in_v1(metric: Ref<'_>, forms: &[Form]) -> String {
    let mut out = format!("{{\"type\":{:?}", metric.str("type"));
    for form in forms {
        let Some(own) = metric.get(form.member).filter(|own| !own.is_null()) else {
            continue;
        };
        let fields = form.fields.iter().filter_map(|field| {
            let value = own.at(field.path).filter(|value| !value.is_null());
            let text = value
                .map(Ref::to_json)
                .or_else(|| field.zero.map(str::to_owned))?;
            Some(format!("{:?}:{text}", field.name))
        });
        let fields: Vec<String> = fields.collect();
        out.push_str(&format!(",{:?}:{{{}}}", form.member, fields.join(",")));
    }
    out.push('}');
    out
}

fn in_v2(metric: Ref<'_>, forms: &[Form], with_target: bool) -> Tree {
    let mut out = Tree::untyped();
    out.set_str(&["type"], metric.str("type"));
    for form in forms {
        let Some(own) = metric.get(form.member).filter(|own| !own.is_null()) else {
            continue;
        };
        for field in form.fields {
            let value = own.get(field.name);
            if let Some(value) = value.filter(|value| !is_filler(form.member, field.name, own, *value)) {
                let steps = [form.member].into_iter().chain(field.path.iter().copied());
                let steps: Vec<Step<'_>> = steps.map(Step::Name).collect();
                out.set(&steps, value);
            }
        }
        if with_target {
            out.set_str(&[form.member, "target", "type"], target_type(form.member, own));
        }
    }
    out
}

/// Reports whether a value is the zero that v1 writes for the target of an object's metric which has an average alone.
fn is_filler(member: &str, field: &str, own: Ref<'_>, value: Ref<'_>) -> bool {
    let is_zero = || {
        value
            .as_str()
            .and_then(|text| text.parse::<Quantity>().ok())
            .is_some_and(|own| own.is_zero())
    };
    let has_average = || own.get("averageValue").is_some_and(|own| !own.is_null());
    (member, field) == ("object", "targetValue") && has_average() && is_zero()
}

/// The type of a metric's target, which v1 implies by the fields that are set.
fn target_type(member: &str, own: Ref<'_>) -> &'static str {
    let has = |name: &str| own.get(name).is_some_and(|value| !value.is_null());
    match member {
        "object" if !has("averageValue") => "Value",
        "external" if has("targetValue") => "Value",
        "resource" | "containerResource" if has("targetAverageUtilization") => "Utilization",
        _ => "AverageValue",
    }
}

/// Names as Go has them, and null for what is absent.
fn in_go(behavior: Ref<'_>) -> String {
    let value = |own: Option<Ref<'_>>| own.map_or_else(|| "null".to_owned(), Ref::to_json);
    let policy = |own: Ref<'_>| {
        let [kind, amount, period] = ["type", "value", "periodSeconds"].map(|name| value(own.get(name)));
        format!(r#"{{"Type":{kind},"Value":{amount},"PeriodSeconds":{period}}}"#)
    };
    let rules = |name: &str| {
        let Some(own) = behavior.get(name).filter(|own| !own.is_null()) else {
            return "null".to_owned();
        };
        let policies = own.get("policies").map_or_else(
            || "null".to_owned(),
            |list| format!("[{}]", list.items().map(policy).collect::<Vec<_>>().join(",")),
        );
        format!(
            r#"{{"StabilizationWindowSeconds":{},"SelectPolicy":{},"Policies":{policies},"Tolerance":{}}}"#,
            value(own.get("stabilizationWindowSeconds")),
            value(own.get("selectPolicy")),
            value(own.get("tolerance")),
        )
    };
    format!(
        r#"{{"ScaleUp":{},"ScaleDown":{}}}"#,
        rules("scaleUp"),
        rules("scaleDown")
    )
}

/// Go's names as the API writes them, without what is null; nothing where nothing is left.
fn as_written(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(members) => {
            let own = members
                .into_iter()
                .filter_map(|(name, value)| Some((lowered(&name), as_written(value)?)));
            let own: Map<String, Value> = own.collect();
            (!own.is_empty()).then_some(Value::Object(own))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(as_written).collect())),
        other => Some(other),
    }
}

fn lowered(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares v1's annotation of a v2 object with the expected one, and the object read back from it with the
    /// original.
    #[track_caller]
    fn both_ways(stored: &str, annotation: &str, expected: &str) {
        let stored = Tree::from_json(stored).unwrap();
        let mut served = Tree::untyped();
        write(&stored, &mut served, |_| true);
        let text = served.str_at(&["metadata", "annotations", annotation]);
        assert_eq!(text, expected);
        let mut back = Tree::untyped();
        read(&served, &mut back);
        assert_eq!(back.get("spec"), stored.get("spec"));
        assert_eq!(back.get("status"), stored.get("status"));
        assert!(back.at(&["metadata", "annotations"]).is_none());
    }

    #[test]
    fn metrics_have_the_first_versions_form() {
        both_ways(
            r#"{"spec":{"metrics":[
                {"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"100Mi"}}},
                {"type":"Pods","pods":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"1"}}},
                {"type":"Object","object":{"describedObject":{"kind":"K","name":"n"},"metric":{"name":"m"},"target":{"type":"Value","value":"7"}}},
                {"type":"External","external":{"metric":{"name":"m","selector":{"matchLabels":{"a":"b"}}},"target":{"type":"Value","value":"2"}}},
                {"type":"ContainerResource","containerResource":{"name":"cpu","container":"c","target":{"type":"Utilization","averageUtilization":3}}}
            ]}}"#,
            METRICS,
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"100Mi"}},{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}},{"type":"Object","object":{"target":{"kind":"K","name":"n"},"metricName":"m","targetValue":"7"}},{"type":"External","external":{"metricName":"m","metricSelector":{"matchLabels":{"a":"b"}},"targetValue":"2"}},{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":3,"container":"c"}}]"#,
        );
    }

    #[test]
    fn hpa_metrics_and_behavior_round_trip() {
        both_ways(
            r#"{"status":{"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":5,"averageValue":"1"}}}]}}"#,
            CURRENT_METRICS,
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"1"}}]"#,
        );
        both_ways(
            r#"{"spec":{"behavior":{"scaleDown":{"policies":[{"periodSeconds":15,"type":"Pods","value":4}],"stabilizationWindowSeconds":60}}}}"#,
            BEHAVIOR,
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":null}}"#,
        );
    }
}
