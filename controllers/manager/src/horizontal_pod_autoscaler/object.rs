//! HorizontalPodAutoscaler (`autoscaling/v2`), as it is decoded for one look.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery_client::Projection;
use machinery_meta::{ObjectHeader, Quantity};
use serde::{Deserialize, Deserializer, Serialize};

/// Projection of a HorizontalPodAutoscaler: none, since each look decodes the object's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AutoscalerView;

impl Projection for AutoscalerView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self)
    }
}

/// The object without its metadata.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Autoscaler {
    pub(super) spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) scale_target_ref: TargetRef,
    #[serde(default)]
    pub(super) min_replicas: Option<i32>,
    #[serde(default)]
    pub(super) max_replicas: i32,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) metrics: Vec<MetricSpec>,
    #[serde(default)]
    pub(super) behavior: Option<Behavior>,
}

impl Spec {
    /// `minReplicas`, or its default.
    pub(super) fn least(&self) -> i32 {
        self.min_replicas.unwrap_or(1)
    }

    /// Reports whether some metric can be there without pods.
    pub(super) fn has_metrics_without_pods(&self) -> bool {
        let without = |metric: &MetricSpec| matches!(metric.kind.as_str(), "Object" | "External");
        self.metrics.iter().any(without)
    }
}

/// A reference to an object of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TargetRef {
    pub(super) kind: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetricSpec {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Option<ObjectSource>,
    pub(super) pods: Option<PodsSource>,
    pub(super) resource: Option<ResourceSource>,
    pub(super) container_resource: Option<ResourceSource>,
    pub(super) external: Option<PodsSource>,
}

/// Source of `Resource` and `ContainerResource`, which alone has a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceSource {
    pub(super) name: String,
    pub(super) container: String,
    pub(super) target: MetricTarget,
}

/// Source of `Pods` and `External`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodsSource {
    pub(super) metric: MetricIdentifier,
    pub(super) target: MetricTarget,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectSource {
    pub(super) described_object: TargetRef,
    pub(super) metric: MetricIdentifier,
    pub(super) target: MetricTarget,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MetricIdentifier {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selector: Option<LabelSelector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetricTarget {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(deserialize_with = "quantity")]
    pub(super) value: Option<Quantity>,
    #[serde(deserialize_with = "quantity")]
    pub(super) average_value: Option<Quantity>,
    pub(super) average_utilization: Option<i32>,
}

/// A value, or the default where there is null: Go writes its empty lists so.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantity>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(serde::de::Error::custom)
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Behavior {
    pub(super) scale_up: Option<Rules>,
    pub(super) scale_down: Option<Rules>,
}

/// Rules of one direction.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rules {
    pub(super) stabilization_window_seconds: Option<i32>,
    pub(super) select_policy: Option<SelectPolicy>,
    #[serde(deserialize_with = "or_default")]
    pub(super) policies: Vec<Policy>,
    #[serde(deserialize_with = "quantity")]
    pub(super) tolerance: Option<Quantity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) enum SelectPolicy {
    Min,
    Disabled,
    #[default]
    #[serde(other)]
    Max,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Policy {
    #[serde(rename = "type")]
    pub(super) kind: PolicyType,
    pub(super) value: i32,
    pub(super) period_seconds: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) enum PolicyType {
    Percent,
    #[default]
    #[serde(other)]
    Pods,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_scale_time: Option<String>,
    pub(super) current_replicas: i32,
    pub(super) desired_replicas: i32,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub(super) current_metrics: Vec<MetricStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

impl Status {
    /// Sets a condition; its time changes with its status alone.
    pub(super) fn set(
        &mut self,
        now: Timestamp,
        kind: &str,
        status: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let status = if status { "True" } else { "False" };
        let found = self.conditions.iter().position(|own| own.kind == kind);
        let at = found.unwrap_or_else(|| {
            self.conditions.push(Condition {
                kind: kind.to_owned(),
                ..Condition::default()
            });
            self.conditions.len() - 1
        });
        let condition = &mut self.conditions[at];
        if condition.status != status {
            condition.last_transition_time = Some(crate::views::seconds(now));
        }
        condition.status = status.to_owned();
        condition.reason = reason.to_owned();
        condition.message = message.into();
    }

    /// Reports whether a condition is true.
    pub(super) fn is(&self, kind: &str) -> bool {
        let found = self.conditions.iter().find(|own| own.kind == kind);
        found.is_some_and(|own| own.status == "True")
    }
}

/// Value of a metric; empty where it is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetricStatus {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<MetricValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pods: Option<MetricValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<ResourceValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container_resource: Option<ResourceValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) external: Option<MetricValue>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ResourceValue {
    pub(super) name: String,
    pub(super) current: Value,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) container: String,
}

/// Value of `Pods`, `External` and `Object`, which alone describes an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MetricValue {
    pub(super) metric: MetricIdentifier,
    pub(super) current: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) described_object: Option<TargetRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Value {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) average_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) average_utilization: Option<i32>,
}

impl Value {
    /// A total, in thousandths.
    pub(super) fn total(millis: i64) -> Self {
        Self {
            value: Some(Quantity::from_millis(millis).to_string()),
            ..Self::default()
        }
    }

    /// An average, in thousandths.
    pub(super) fn average(millis: i64) -> Self {
        Self {
            average_value: Some(Quantity::from_millis(millis).to_string()),
            ..Self::default()
        }
    }
}

/// A selector as Go prints a pointer to one.
pub(super) fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let pairs = selector.match_labels.iter().flatten();
    let pairs: String = pairs.map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: String = expressions
        .map(|own| {
            let values = own.values.as_deref().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                own.key, own.operator
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_shown_as_go_shows_them() {
        for (selector, expected) in [
            (json!(null), "nil"),
            (
                json!({}),
                "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}",
            ),
            (
                json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}),
                "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}",
            ),
        ] {
            let selector: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
            assert_eq!(shown(selector.as_ref()), expected);
        }
    }
}
