//! Limits of a change (`horizontal_test.go`).

use super::{CLOCK, clock_ago, rows, settings};
use crate::horizontal_pod_autoscaler::history::History;
use crate::horizontal_pod_autoscaler::limits::{Sizes, by_rules, in_range};
use crate::horizontal_pod_autoscaler::object::Rules;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LimitRow {
    name: String,
    kind: String,
    #[serde(default)]
    current: i32,
    #[serde(default)]
    desired: i32,
    #[serde(default)]
    least: i32,
    #[serde(default)]
    most: i32,
    #[serde(default)]
    ups: Vec<(i64, i32)>,
    #[serde(default)]
    downs: Vec<(i64, i32)>,
    #[serde(default)]
    recommendations: Vec<(i64, i32)>,
    up: Option<Value>,
    down: Option<Value>,
    #[serde(default)]
    up_window: i32,
    #[serde(default)]
    down_window: i32,
    #[serde(default)]
    change: i32,
    #[serde(default)]
    changes: Vec<i32>,
    expected: i32,
    #[serde(default)]
    reason: String,
}

pub(super) fn times(all: &[(i64, i32)]) -> Vec<(Duration, i32)> {
    all.iter()
        .map(|(seconds, number)| (clock_ago(*seconds), *number))
        .collect()
}

/// Rules with the API's defaults.
pub(super) fn rules(written: Option<&Value>, is_up: bool) -> Rules {
    let mut rules = match is_up {
        true => json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]}),
        false => {
            json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]})
        }
    };
    for (name, value) in written.and_then(Value::as_object).into_iter().flatten() {
        rules[name] = value.clone();
    }
    serde_json::from_value(rules).unwrap()
}

impl LimitRow {
    fn sizes(&self) -> Sizes {
        Sizes {
            least: self.least,
            most: self.most,
            current: self.current,
            desired: self.desired,
            factor: settings().scale_up_factor,
        }
    }

    fn check(&self) {
        let name = &self.name;
        let mut history = History::of(times(&self.recommendations), times(&self.ups), times(&self.downs));
        match self.kind.as_str() {
            "range" => {
                let (replicas, why) = in_range(self.sizes(), self.desired);
                assert_eq!((replicas, why.0), (self.expected, self.reason.as_str()), "{name}");
            }
            "rate" => {
                // Nothing stabilizes.
                let (mut up, mut down) = (rules(self.up.as_ref(), true), rules(self.down.as_ref(), false));
                up.stabilization_window_seconds = Some(0);
                down.stabilization_window_seconds = Some(0);
                let limited = by_rules(self.sizes(), (&up, &down), Duration::ZERO, &mut history, CLOCK);
                let found = (limited.replicas, limited.limited.1.0);
                assert_eq!(found, (self.expected, self.reason.as_str()), "{name}");
            }
            "stabilize" => {
                let (mut up, mut down) = (rules(None, true), rules(None, false));
                up.stabilization_window_seconds = Some(self.up_window);
                down.stabilization_window_seconds = Some(self.down_window);
                // No policy limits.
                up.policies[0].value = 10_000;
                let sizes = Sizes {
                    most: 10_000,
                    ..self.sizes()
                };
                let limited = by_rules(sizes, (&up, &down), Duration::ZERO, &mut history, CLOCK);
                assert_eq!(limited.replicas, self.expected, "{name}");
            }
            _ => self.check_events(),
        }
    }

    /// The same of either direction.
    fn check_events(&self) {
        let (name, minute) = (&self.name, Duration::from_secs(60));
        let own: Option<Rules> = self.up.clone().map(|own| serde_json::from_value(own).unwrap());
        let pair = own.as_ref().map(|own| (own, own));
        for direction in [1, -1] {
            let events = times(&self.ups);
            let mut history = match direction {
                1 => History::of(Vec::new(), events, Vec::new()),
                _ => History::of(Vec::new(), Vec::new(), events),
            };
            let of = |sums: [i32; 2]| if direction == 1 { sums[0] } else { sums[1] };
            assert_eq!(of(history.sums(minute, CLOCK)), self.expected, "{name}");
            history.changed(pair, [10, 10 + direction * self.change], CLOCK);
            let all = of(history.sums(Duration::from_secs(90_000), CLOCK));
            assert_eq!(all, self.changes.iter().sum::<i32>(), "{name}");
        }
    }
}

#[test]
fn autoscaler_limits_are_upstreams() {
    for row in rows::<LimitRow>(include_str!(
        "../../../testdata/horizontal_pod_autoscaler/limits.json"
    )) {
        row.check();
    }
}
