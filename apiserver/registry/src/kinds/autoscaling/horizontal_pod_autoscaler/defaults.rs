//! Defaults of HorizontalPodAutoscalers.

use machinery_schema::{Mut, Tree, Value};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &["spec.minReplicas=1"];

/// A metric where there is none, and the rules of a behavior.
pub(super) fn set(object: &mut Tree) {
    metrics(object);
    behavior(object);
}

/// Sets the metric of an object without any: CPU used to four fifths (`autoscaling/v2`; `v1` shows it as a number of its own).
fn metrics(object: &mut Tree) {
    let second = object.str_at(&["apiVersion"]) == "autoscaling/v2";
    let said = object
        .at(&["spec", "metrics"])
        .is_some_and(|metrics| !metrics.is_empty());
    if !second || said {
        return;
    }
    object.with(&["spec"], |mut spec| {
        let mut metrics = spec.entry("metrics");
        let mut metric = metrics.push(Value::EmptyMap);
        metric.set("type", "Resource");
        let mut resource = metric.entry("resource");
        resource.set("name", "cpu");
        let mut target = resource.entry("target");
        target.set("type", "Utilization");
        target.set("averageUtilization", 80);
    });
}

/// Fills all rules of both directions, if a behavior is given.
pub(super) fn behavior(object: &mut Tree) {
    object.with(&["spec", "behavior"], |mut behavior| {
        if behavior.is_null() {
            return;
        }
        scaling_rules(
            &mut behavior.entry("scaleUp"),
            &[("Pods", 4), ("Percent", 100)],
            Some(0),
        );
        scaling_rules(&mut behavior.entry("scaleDown"), &[("Percent", 100)], None);
    });
}

/// Every policy is for fifteen seconds.
fn scaling_rules(rules: &mut Mut<'_>, policies: &[(&str, i64)], window: Option<i64>) {
    if rules.is_null() {
        rules.set_value(Value::EmptyMap);
    }
    rules.default("selectPolicy", "Max");
    if let Some(seconds) = window {
        rules.default("stabilizationWindowSeconds", seconds);
    }
    if rules.as_ref().list("policies").len() > 0 {
        return;
    }
    for (kind, value) in policies {
        let mut list = rules.entry("policies");
        let mut policy = list.push(Value::EmptyMap);
        policy.set("type", *kind);
        policy.set("value", *value);
        policy.set("periodSeconds", 15);
    }
}
