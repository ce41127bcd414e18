//! Upstream's tables as data (`replica_calculator_test.go`, `horizontal_test.go`), with what upstream's code answered in
//! them: sizes, conditions with their messages, values of metrics, errors.

mod calculations;
mod limits;
mod rounds;
mod selectors;

use super::calculator::{PodRef, ZERO_TIME};
use super::history::History;
use super::metrics::Replicas;
use super::round::{Measured, Next, Round, Settings, UnusableSelector};
use crate::views::PodView;
use jiff::{SignedDuration, Timestamp};
use machinery_client::object::object_of;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// The monotonic clock at that time.
const CLOCK: Duration = Duration::from_secs(100_000);

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn clock_ago(seconds: i64) -> Duration {
    CLOCK - Duration::from_secs(u64::try_from(seconds).unwrap())
}

/// Go's zero time where there is none.
fn go_time(seconds: Option<i64>) -> String {
    seconds.map_or(ZERO_TIME, ago).to_string()
}

/// Settings of upstream's tests.
fn settings() -> Settings {
    Settings {
        tolerance: 0.1,
        downscale_stabilization: Duration::from_secs(300),
        cpu_initialization_period: SignedDuration::from_mins(2),
        initial_readiness_delay: SignedDuration::from_secs(10),
        scale_up_factor: 8,
    }
}

/// Pods `test-pod-N` as the tables describe them.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Pods {
    readiness: Option<Vec<String>>,
    phases: Option<Vec<String>>,
    deleting: Option<Vec<bool>>,
    started: Option<Vec<Option<i64>>>,
    requests: Option<Vec<String>>,
}

impl Pods {
    /// `transitions` says whether readiness changed at the start, or never.
    fn pod(&self, number: usize, request: Value, transitions: bool) -> PodRef {
        let of = |all: &Option<Vec<String>>, default: &str| {
            let found = all.as_ref().and_then(|all| all.get(number).cloned());
            found.unwrap_or_else(|| default.to_owned())
        };
        let started = go_time(self.started.as_ref().and_then(|all| all[number]));
        let container = |name| json!({"name": name, "resources": {"requests": request}});
        let mut pod = json!({
            "metadata": {"name": format!("test-pod-{number}"), "namespace": "test-namespace", "labels": {"name": "test-pod"}},
            "spec": {"containers": [container("container1"), container("container2")]},
            "status": {"phase": of(&self.phases, "Running"), "startTime": started,
                "conditions": [{"type": "Ready", "status": of(&self.readiness, "True")}]},
        });
        if transitions {
            pod["status"]["conditions"][0]["lastTransitionTime"] = started.into();
        }
        if self.deleting.as_ref().is_some_and(|all| all[number]) {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        }
        Arc::new(object_of::<PodView>(&pod.to_string()).unwrap())
    }
}

fn round() -> Round<'static> {
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 5, "metrics": [metric]});
    let autoscaler = serde_json::from_value(json!({ "spec": spec })).unwrap();
    Round::new(("n", 7), autoscaler, settings(), (now(), CLOCK))
}

/// The condition of a type as status, reason and message.
fn condition(round: &Round<'_>, kind: &str) -> [String; 3] {
    let found = round.status.conditions.iter().find(|own| own.kind == kind);
    found.map_or_else(Default::default, |own| {
        [own.status.clone(), own.reason.clone(), own.message.clone()]
    })
}

fn reasons(round: &Round<'_>) -> Vec<&'static str> {
    round.notes.iter().map(|note| note.reason).collect()
}

#[test]
fn autoscaler_failures_are_conditions_and_events() {
    let replicas = Replicas { spec: 2, status: 2 };
    let mut none = round();
    none.no_scale("deployments.apps \"web\" not found");
    assert_eq!(
        condition(&none, "AbleToScale"),
        [
            "False",
            "FailedGetScale",
            "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found"
        ]
    );
    assert_eq!(
        (reasons(&none), none.status.observed_generation),
        (vec!["FailedGetScale"], None)
    );

    let mut refused = round();
    assert_eq!(refused.begin(replicas, &mut History::default()), None);
    let next = refused.unusable(UnusableSelector {
        event: "SelectorRequired",
        condition: "InvalidSelector",
        message: "selector is required".to_owned(),
    });
    assert_eq!(next, Next::Failed("selector is required".to_owned()));
    assert_eq!(
        condition(&refused, "ScalingActive"),
        [
            "False",
            "InvalidSelector",
            "the HPA target's scale is missing a selector"
        ]
    );
    assert_eq!(
        reasons(&refused),
        ["SelectorRequired", "FailedComputeMetricsReplicas"]
    );

    let mut unmeasured = round();
    assert_eq!(unmeasured.begin(replicas, &mut History::default()), None);
    let error = "unable to fetch metrics from resource metrics API: no";
    let fetched = vec![Err(error.to_owned())];
    let measured = Measured {
        pods: Vec::new(),
        fetched,
        took: Vec::new(),
    };
    let Next::Failed(said) = unmeasured.decide(measured, &mut History::default()) else {
        panic!("a size without metrics");
    };
    let cause = format!("failed to get cpu utilization: unable to get metrics for resource cpu: {error}");
    assert_eq!(
        said,
        format!(
            "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {cause}"
        )
    );
    assert_eq!(
        condition(&unmeasured, "ScalingActive"),
        [
            "False",
            "FailedGetResourceMetric",
            format!("the HPA was unable to compute the replica count: {cause}").as_str()
        ]
    );
    assert_eq!(
        reasons(&unmeasured),
        ["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]
    );

    let mut stuck = round();
    assert_eq!(stuck.begin(replicas, &mut History::default()), None);
    stuck.not_resized(4, "cpu above target", "no");
    assert_eq!(
        condition(&stuck, "AbleToScale"),
        [
            "False",
            "FailedUpdateScale",
            "the HPA controller was unable to update the target scale: no"
        ]
    );
    let [note] = &stuck.notes[..] else {
        panic!("{:?}", stuck.notes)
    };
    assert_eq!(note.message, "New size: 4; reason: cpu above target; error: no");
    assert_eq!(stuck.status.observed_generation, Some(7));
}

#[test]
fn autoscaler_history_is_bounded() {
    let mut history = History::default();
    let own = limits::rules(None, true);
    for number in 0..5_000 {
        let at = CLOCK + Duration::from_millis(u64::try_from(number).unwrap());
        history.recommend(number, Duration::from_secs(3_600), at);
        history.changed(Some((&own, &own)), [1, number + 2], at);
    }
    let (all, sums) = (
        history.within(Duration::MAX, CLOCK).count(),
        history.sums(Duration::MAX, CLOCK),
    );
    assert_eq!(all, 1_000);
    assert_eq!(sums[0], (4_001..=5_000).sum::<i32>());
}
