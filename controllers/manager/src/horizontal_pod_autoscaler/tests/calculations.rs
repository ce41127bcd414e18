//! `replica_calculator_test.go`.

use super::{Pods, ago, now, rows, settings};
use crate::horizontal_pod_autoscaler::calculator::{
    Calculator, Groups, PodMetric, PodMetrics, PodRef, Tolerances, Usage, ZERO_TIME, requests,
};
use crate::views::PodView;
use jiff::SignedDuration;
use machinery_client::object::object_of;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CalculatorRow {
    name: String,
    kind: String,
    replicas: i32,
    #[serde(flatten)]
    pods: Pods,
    sampled: Option<i64>,
    levels: Value,
    #[serde(default)]
    pod_names: Vec<String>,
    #[serde(default)]
    container: String,
    tolerances: Option<BTreeMap<String, f64>>,
    target: i64,
    error: Option<String>,
    #[serde(default)]
    expected: i32,
    #[serde(default)]
    percent: i32,
    #[serde(default)]
    average: i64,
    #[serde(default)]
    usage: i64,
}

impl CalculatorRow {
    fn all_pods(&self) -> Vec<PodRef> {
        let phases = self.pods.phases.as_ref().map_or(0, Vec::len);
        let count = phases.max(usize::try_from(self.replicas).unwrap());
        let request = |number: usize| match self.pods.requests.as_ref().and_then(|all| all.get(number)) {
            Some(request) => json!({"cpu": request}),
            None => json!({}),
        };
        (0..count)
            .map(|number| self.pods.pod(number, request(number), false))
            .collect()
    }

    fn metrics(&self) -> PodMetrics {
        let levels: Vec<Value> = serde_json::from_value(self.levels.clone()).unwrap();
        let samples = levels.iter().enumerate().filter_map(|(number, level)| {
            let value = match (level.as_array(), self.container.as_str()) {
                (None, _) => level.as_i64().unwrap(),
                (Some(all), "") if all.len() < 2 => return None,
                (Some(all), "") => all.iter().map(|own| own.as_i64().unwrap()).sum(),
                (Some(all), name) => all.get(usize::from(name == "container2"))?.as_i64().unwrap(),
            };
            let name = self.pod_names.get(number).cloned();
            let metric = PodMetric {
                at: self.sampled.map_or(ZERO_TIME, ago),
                window: SignedDuration::from_mins(1),
                value,
            };
            Some((name.unwrap_or_else(|| format!("test-pod-{number}")), metric))
        });
        samples.collect()
    }

    fn check(&self) {
        let (pods, name) = (self.all_pods(), &self.name);
        let tolerance = |side: &str| {
            let own = self.tolerances.as_ref();
            own.map_or(0.1, |own| own.get(side).copied().unwrap_or(0.0))
        };
        let calculator = Calculator {
            pods: &pods,
            tolerances: Tolerances {
                down: tolerance("scaleDown"),
                up: tolerance("scaleUp"),
            },
            now: now(),
            cpu_initialization_period: settings().cpu_initialization_period,
            initial_readiness_delay: settings().initial_readiness_delay,
        };
        let values = || {
            self.metrics()
                .values()
                .fold(0_i64, |sum, own| sum.saturating_add(own.value))
        };
        let usage = |usage: Usage| (usage.replicas, 0, usage.value);
        let found = match self.kind.as_str() {
            "resource" => {
                let target = i32::try_from(self.target).unwrap();
                let of = ("cpu", self.container.as_str());
                let found = calculator.utilization(self.replicas, target, of, self.metrics());
                found.map(|own| (own.replicas, own.percent, own.average))
            }
            "pods" => calculator
                .average(self.replicas, self.target, "", self.metrics())
                .map(usage),
            "object" | "external" => calculator.total(self.replicas, self.target, values()).map(usage),
            _ => Ok(usage(calculator.total_per_pod(
                self.replicas,
                self.target,
                values(),
            ))),
        };
        match &self.error {
            Some(error) if found.is_ok() => panic!("{name}: {found:?} instead of {error}"),
            Some(_) => {}
            None => {
                let expected = (self.expected, self.percent, self.average + self.usage);
                assert_eq!(found, Ok(expected), "{name}");
            }
        }
    }
}

#[test]
fn autoscaler_calculations_are_upstreams() {
    for row in rows::<CalculatorRow>(include_str!(
        "../../../testdata/horizontal_pod_autoscaler/calculator.json"
    )) {
        row.check();
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodsRow {
    name: String,
    pods: Vec<Value>,
    resource: String,
    metrics: Option<BTreeMap<String, SampleRow>>,
    #[serde(default)]
    ready: usize,
    #[serde(default)]
    unready: Vec<String>,
    #[serde(default)]
    missing: Vec<String>,
    #[serde(default)]
    ignored: Vec<String>,
    #[serde(default)]
    container: String,
    requests: Option<BTreeMap<String, i64>>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SampleRow {
    seconds_ago: Option<i64>,
    window: String,
    value: i64,
}

/// Times of the table as times.
fn with_times(value: &mut Value) {
    if let Some(seconds) = value.get("secondsAgo").and_then(Value::as_i64) {
        *value = ago(seconds).to_string().into();
        return;
    }
    match value {
        Value::Object(members) => members.values_mut().for_each(with_times),
        Value::Array(items) => items.iter_mut().for_each(with_times),
        _ => {}
    }
}

impl PodsRow {
    fn check(mut self) {
        self.pods.iter_mut().for_each(with_times);
        let pods: Vec<PodRef> = self
            .pods
            .iter()
            .map(|pod| Arc::new(object_of::<PodView>(&pod.to_string()).unwrap()))
            .collect();
        let name = &self.name;
        let Some(metrics) = self.metrics else {
            let found = requests(&pods, &self.container, &self.resource);
            let found = found.map(|all| all.into_iter().map(|(pod, own)| (pod.to_owned(), own)).collect());
            let expected = self.requests.map_or_else(|| Err(self.error.unwrap()), Ok);
            assert_eq!(found, expected, "{name}");
            return;
        };
        let calculator = Calculator {
            pods: &pods,
            tolerances: Tolerances { down: 0.1, up: 0.1 },
            now: now(),
            cpu_initialization_period: settings().cpu_initialization_period,
            initial_readiness_delay: settings().initial_readiness_delay,
        };
        let metrics = metrics.into_iter().map(|(pod, own)| {
            let window: SignedDuration = own.window.parse().unwrap();
            let at = own.seconds_ago.map_or(ZERO_TIME, ago);
            let value = own.value;
            (pod, PodMetric { at, window, value })
        });
        let groups = calculator.groups(&metrics.collect(), &self.resource);
        let set = |names: Vec<String>| names.into_iter().collect();
        let expected = Groups {
            ready: self.ready,
            unready: set(self.unready),
            missing: set(self.missing),
            ignored: set(self.ignored),
        };
        assert_eq!(groups, expected, "{name}");
    }
}

#[test]
fn autoscaler_pods_are_grouped_as_upstreams() {
    for row in rows::<PodsRow>(include_str!(
        "../../../testdata/horizontal_pod_autoscaler/pods.json"
    )) {
        row.check();
    }
}
