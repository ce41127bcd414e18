//! Whole looks (`horizontal_test.go`).

use super::limits::times;
use super::{CLOCK, Pods, now, rows, settings};
use crate::horizontal_pod_autoscaler::calculator::{PodMetric, PodRef};
use crate::horizontal_pod_autoscaler::history::History;
use crate::horizontal_pod_autoscaler::metrics::{Fetched, Replicas, amount};
use crate::horizontal_pod_autoscaler::object::{Autoscaler, MetricSpec};
use crate::horizontal_pod_autoscaler::round::{Measured, Next, Round};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoundRow {
    name: String,
    replicas: [i32; 2],
    spec: Value,
    levels: Vec<i64>,
    #[serde(rename = "pods")]
    count: usize,
    #[serde(flatten)]
    pods: Pods,
    #[serde(default)]
    conditions: Value,
    /// Empty where upstream's test has none; absent where the look begins with the present size.
    recommendations: Option<Vec<(i64, i32)>>,
    /// Upstream ran without HPAScaleToZero.
    #[serde(default)]
    without_zero: bool,
    resized: Option<i32>,
    status: Value,
    #[serde(default)]
    error: String,
}

impl RoundRow {
    fn all_pods(&self) -> Vec<PodRef> {
        let request = |number: usize| {
            let written = self.pods.requests.as_ref().map_or("1", |all| &all[number]);
            let whole: machinery_meta::Quantity = written.parse().unwrap();
            json!({"cpu": amount("cpu", whole.millis() / 2)})
        };
        let all = 0..self.count;
        all.map(|number| self.pods.pod(number, request(number), true))
            .collect()
    }

    fn fetched(&self, metric: &MetricSpec) -> Result<Fetched, String> {
        let empty = |api: &str| Err(format!("no metrics returned from {api} metrics API"));
        let samples = |value: &dyn Fn(i64) -> i64| {
            let each = self.levels.iter().enumerate().map(|(number, level)| {
                let metric = PodMetric {
                    at: now(),
                    window: SignedDuration::from_mins(1),
                    value: value(*level),
                };
                (format!("test-pod-{number}"), metric)
            });
            Ok(Fetched::Pods(each.collect()))
        };
        match metric.kind.as_str() {
            "Resource" | "ContainerResource" if self.levels.is_empty() => empty("resource"),
            "Pods" if self.levels.is_empty() => empty("custom"),
            "Resource" if metric.resource.as_ref().unwrap().name == "memory" => samples(&|_| 1_048_576_000),
            "Resource" => samples(&|level| level / 2 * 2),
            "ContainerResource" => samples(&|level| level / 2),
            "Pods" => samples(&|level| level),
            "Object" => self
                .levels
                .first()
                .map_or_else(|| empty("custom"), |own| Ok(Fetched::Object(*own))),
            "External" if self.levels.is_empty() => empty("external"),
            _ => Ok(Fetched::External(self.levels.clone())),
        }
    }

    fn past(&self) -> Vec<(Duration, i32)> {
        match self.recommendations.as_deref() {
            None => Vec::new(),
            // Of a time that no window has.
            Some([]) => vec![(Duration::ZERO, 0)],
            Some(all) => times(all),
        }
    }

    fn check(&self) {
        let name = &self.name;
        // Go writes empty lists as null.
        let (size, conditions) = (self.replicas[0], &self.conditions);
        let status = json!({"currentReplicas": size, "desiredReplicas": size, "conditions": conditions, "currentMetrics": null});
        let autoscaler = json!({"spec": self.spec, "status": status});
        let autoscaler: Autoscaler = serde_json::from_value(autoscaler).unwrap();
        let mut round = Round::new(("test-namespace", 1), autoscaler, settings(), (now(), CLOCK));
        let mut history = History::of(self.past(), Vec::new(), Vec::new());
        let replicas = Replicas {
            spec: self.replicas[0],
            status: self.replicas[1],
        };
        let next = round.begin(replicas, &mut history).unwrap_or_else(|| {
            let fetched = round
                .spec
                .metrics
                .iter()
                .map(|metric| self.fetched(metric))
                .collect();
            let pods = self.all_pods();
            round.decide(
                Measured {
                    pods,
                    fetched,
                    took: Vec::new(),
                },
                &mut history,
            )
        });
        let mut resized = None;
        match &next {
            Next::Rest => round.rested(),
            Next::Failed(error) => assert!(
                self.error.ends_with(error.as_str()),
                "{name}: {error}\n{}",
                self.error
            ),
            Next::Resize(desired, reason) => {
                resized = Some(*desired);
                round.resized(*desired, reason, &mut history);
            }
        }
        assert_eq!(resized, self.resized, "{name}: {next:?}");
        let found = comparable(serde_json::to_value(&round.status).unwrap(), self.without_zero);
        assert_eq!(
            found,
            comparable(self.status.clone(), self.without_zero),
            "{name}"
        );
    }
}

/// A status without times.
fn comparable(mut status: Value, without_zero: bool) -> Value {
    for member in ["lastScaleTime", "observedGeneration"] {
        status.as_object_mut().unwrap().remove(member);
    }
    // What is zero or empty may be left out.
    if status["currentReplicas"].is_null() {
        status["currentReplicas"] = json!(0);
    }
    if status["currentMetrics"].is_null() {
        status.as_object_mut().unwrap().remove("currentMetrics");
    }
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|own| !without_zero || own["type"] != "ScaledToZero");
        conditions.iter_mut().for_each(|own| {
            own.as_object_mut().unwrap().remove("lastTransitionTime");
        });
    }
    status
}

#[test]
fn autoscaler_looks_end_as_upstreams() {
    for row in rows::<RoundRow>(include_str!(
        "../../../testdata/horizontal_pod_autoscaler/rounds.json"
    )) {
        row.check();
    }
}
