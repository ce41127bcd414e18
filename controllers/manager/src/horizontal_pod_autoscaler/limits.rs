//! Limits of a change: bounds, policies and stabilization (upstream's `normalizeDesiredReplicas…`). Pure.

use super::history::{History, period};
use super::object::{Behavior, PolicyType, Rules, SelectPolicy};
use std::time::Duration;

/// Without a behavior the size grows in one step at most so many times, or to this.
pub(super) const SCALE_UP_FACTOR: i32 = 2;
const SCALE_UP_MINIMUM: i32 = 4;

/// Sizes of one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) least: i32,
    pub(super) most: i32,
    pub(super) current: i32,
    /// As the metrics ask.
    pub(super) desired: i32,
    /// [`SCALE_UP_FACTOR`], but for upstream's tables.
    pub(super) factor: i32,
}

/// A size with the conditions that say how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limited {
    pub(super) replicas: i32,
    /// Of `AbleToScale`.
    pub(super) able: Why,
    /// Of `ScalingLimited`, and whether it is.
    pub(super) limited: (bool, Why),
}

/// Reason and message of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Why(pub(super) &'static str, pub(super) &'static str);

const READY: Why = Why("ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: Why = Why(
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: Why = Why(
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: Why = Why(
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const UP_LIMIT: Why = Why(
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const DOWN_LIMIT: Why = Why(
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const TOO_MANY: Why = Why(
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: Why = Why(
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);

impl Limited {
    fn of(sizes: Sizes, stabilized: i32, able: Why, (replicas, why): (i32, Why)) -> Self {
        Self {
            replicas,
            able: if stabilized == sizes.desired { READY } else { able },
            limited: (replicas != stabilized, why),
        }
    }
}

/// The rules of both directions, where a behavior has them.
pub(super) fn rules(behavior: &Behavior) -> Option<(&Rules, &Rules)> {
    Some((behavior.scale_up.as_ref()?, behavior.scale_down.as_ref()?))
}

/// Limits of an autoscaler without a behavior: down only to the highest recommendation of the window.
pub(super) fn by_default(sizes: Sizes, window: Duration, history: &mut History, now: Duration) -> Limited {
    let highest = history.within(window, now).max();
    let stabilized = highest.map_or(sizes.desired, |highest| highest.max(sizes.desired));
    history.recommend(sizes.desired, window, now);
    Limited::of(sizes, stabilized, DOWN_STABILIZED, in_range(sizes, stabilized))
}

/// The size within its bounds, and growing not too fast.
pub(super) fn in_range(sizes: Sizes, desired: i32) -> (i32, Why) {
    let fastest = sizes.current.saturating_mul(sizes.factor).max(SCALE_UP_MINIMUM);
    let (most, why) = match sizes.most > fastest {
        true => (fastest, UP_LIMIT),
        false => (sizes.most, TOO_MANY),
    };
    match desired {
        desired if desired < sizes.least => (sizes.least, TOO_FEW),
        desired if desired > most => (most, why),
        desired => (desired, WITHIN),
    }
}

/// Limits by the rules of a behavior; `window` is that of downward changes where the rules have none.
pub(super) fn by_rules(
    sizes: Sizes,
    (up, down): (&Rules, &Rules),
    window: Duration,
    history: &mut History,
    now: Duration,
) -> Limited {
    let up_window = up.stabilization_window_seconds.map_or(Duration::ZERO, period);
    let down_window = down.stabilization_window_seconds.map_or(window, period);
    let lowest = history.younger(up_window, now).fold(sizes.desired, i32::min);
    let highest = history.younger(down_window, now).fold(sizes.desired, i32::max);
    let stabilized = sizes.current.max(lowest).min(highest);
    history.recommend(sizes.desired, up_window.max(down_window), now);
    let why = match sizes.desired >= sizes.current {
        true => UP_STABILIZED,
        false => DOWN_STABILIZED,
    };
    let limited = in_rate(sizes, stabilized, (up, down), history, now);
    Limited::of(sizes, stabilized, why, limited)
}

/// The size within its bounds, changing not faster than the policies have it.
fn in_rate(
    sizes: Sizes,
    desired: i32,
    (up, down): (&Rules, &Rules),
    history: &History,
    now: Duration,
) -> (i32, Why) {
    if desired > sizes.current {
        let limit = up_limit(sizes.current, up, history, now).max(sizes.current);
        let (most, why) = match sizes.most > limit {
            true => (limit, UP_LIMIT),
            false => (sizes.most, TOO_MANY),
        };
        if desired > most {
            return (most, why);
        }
    } else if desired < sizes.current {
        let limit = down_limit(sizes.current, down, history, now).min(sizes.current);
        let (least, why) = match sizes.least < limit {
            true => (limit, DOWN_LIMIT),
            false => (sizes.least, TOO_FEW),
        };
        if desired < least {
            return (least, why);
        }
    }
    (desired, WITHIN)
}

/// The largest size that the policies allow now.
pub(super) fn up_limit(current: i32, rules: &Rules, history: &History, now: Duration) -> i32 {
    let proposals = rules.policies.iter().map(|policy| {
        let start = history.at_start(current, period(policy.period_seconds), now);
        match policy.kind {
            PolicyType::Pods => start.saturating_add(policy.value),
            // Rounded up, or a small target would never grow.
            PolicyType::Percent => whole((f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil()),
        }
    });
    match rules.select_policy.unwrap_or_default() {
        SelectPolicy::Disabled => current,
        SelectPolicy::Min => proposals.min().unwrap_or(i32::MAX),
        SelectPolicy::Max => proposals.max().unwrap_or(i32::MIN),
    }
}

/// The smallest size that the policies allow now.
pub(super) fn down_limit(current: i32, rules: &Rules, history: &History, now: Duration) -> i32 {
    let proposals = rules.policies.iter().map(|policy| {
        let start = history.at_start(current, period(policy.period_seconds), now);
        match policy.kind {
            PolicyType::Pods => start.saturating_sub(policy.value),
            PolicyType::Percent => whole(f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)),
        }
    });
    match rules.select_policy.unwrap_or_default() {
        SelectPolicy::Disabled => current,
        SelectPolicy::Min => proposals.max().unwrap_or(i32::MIN),
        SelectPolicy::Max => proposals.min().unwrap_or(i32::MAX),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn whole(value: f64) -> i32 {
    value as i32
}
