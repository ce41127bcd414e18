//! Rules of upstream's `ValidateKubeletConfiguration` about fields that the agent honours, in its words. Checks that flags make as well are
//! left to them: thresholds, reserved resources, levels of allocatable, quantities. Pure.

use super::fields::field;
use super::settings::given;
use machinery_schema::leaf::{parse_duration, write_duration};
use node_kubelet::SwapBehavior;
use serde_json::{Map, Value};

/// Everything wrong with a document that was decoded.
pub(super) fn problems(document: &Map<String, Value>) -> Vec<String> {
    let own = Document(document);
    let mut problems = ports(&own);
    problems.extend(images(&own));
    problems.extend(pulls(&own));
    problems.extend(counts(&own));
    problems.extend(taints(document));
    problems.extend(shutdown(&own));
    problems.extend(swap(&own));
    let wrong = problems.into_iter();
    wrong
        .map(|problem| format!("invalid configuration: {problem}"))
        .collect()
}

struct Document<'a>(&'a Map<String, Value>);

impl Document<'_> {
    fn value(&self, path: &str) -> Option<&Value> {
        given(self.0, field(path)?)
    }

    fn number(&self, path: &str) -> Option<i64> {
        self.value(path)?.as_i64()
    }

    /// The number, or upstream's default.
    fn number_or_default(&self, path: &str) -> i64 {
        let default = || field(path).and_then(|field| field.default.parse().ok());
        self.number(path).or_else(default).unwrap_or(0)
    }

    /// Nanoseconds, or upstream's default.
    fn duration(&self, path: &str) -> i64 {
        let given = self.value(path).and_then(Value::as_str);
        let default = field(path).map_or("0s", |field| field.default);
        parse_duration(given.unwrap_or(default)).unwrap_or(0)
    }
}

fn ports(own: &Document<'_>) -> Vec<String> {
    let rows = [("port", "--port"), ("healthzPort", "--healthz-port")];
    let wrong = rows.into_iter().filter_map(|(path, flag)| {
        let port = own.number(path)?;
        let may_be_none = path == "healthzPort" && port == 0;
        (!may_be_none && !(1..=65_535).contains(&port))
            .then(|| format!("{path} ({flag}) {port} must be between 1 and 65535, inclusive"))
    });
    wrong.collect()
}

fn images(own: &Document<'_>) -> Vec<String> {
    const HIGH: (&str, &str) = ("imageGCHighThresholdPercent", "--image-gc-high-threshold");
    const LOW: (&str, &str) = ("imageGCLowThresholdPercent", "--image-gc-low-threshold");
    let (high, low) = (own.number_or_default(HIGH.0), own.number_or_default(LOW.0));
    let mut problems = Vec::new();
    for ((path, flag), percent) in [(HIGH, high), (LOW, low)] {
        if !(0..=100).contains(&percent) {
            problems.push(format!(
                "{path} ({flag}) {percent} must be between 0 and 100, inclusive"
            ));
        }
    }
    if low >= high {
        let ((high_path, high_flag), (low_path, low_flag)) = (HIGH, LOW);
        problems.push(format!(
            "{low_path} ({low_flag}) {low} must be less than {high_path} ({high_flag}) {high}"
        ));
    }
    let (minimum, maximum) = (
        own.duration("imageMinimumGCAge"),
        own.duration("imageMaximumGCAge"),
    );
    for (path, age) in [("imageMinimumGCAge", minimum), ("imageMaximumGCAge", maximum)] {
        if age < 0 {
            problems.push(format!("{path} {} must not be negative", write_duration(age)));
        }
    }
    if maximum > 0 && maximum <= minimum {
        let (maximum, minimum) = (write_duration(maximum), write_duration(minimum));
        problems.push(format!(
            "imageMaximumGCAge {maximum} must be greater than imageMinimumGCAge {minimum}"
        ));
    }
    problems
}

fn pulls(own: &Document<'_>) -> Vec<String> {
    let most = own.number("maxParallelImagePulls");
    // Upstream's default of the one follows from the other.
    let is_serial = own.value("serializeImagePulls").and_then(Value::as_bool) == Some(true);
    let mut problems = Vec::new();
    if let Some(most) = most.filter(|most| *most < 1) {
        problems.push(format!("maxParallelImagePulls {most} must be a positive number"));
    }
    if is_serial && most.is_some_and(|most| most > 1) {
        problems.push(
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to \
             false"
                .to_owned(),
        );
    }
    problems
}

fn swap(own: &Document<'_>) -> Option<String> {
    let behavior = own.value("memorySwap.swapBehavior")?.as_str()?;
    let wrong = behavior.parse::<SwapBehavior>().err()?;
    Some(format!("memorySwap.swapBehavior {wrong}"))
}

fn counts(own: &Document<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, flag) in [("maxPods", "--max-pods"), ("podsPerCore", "--pods-per-core")] {
        if let Some(count) = own.number(path).filter(|count| *count < 0) {
            problems.push(format!("{path} ({flag}) {count} must not be a negative number"));
        }
    }
    if own.number_or_default("containerLogMaxFiles") <= 1 {
        problems.push("containerLogMaxFiles must be greater than 1".to_owned());
    }
    if own.value("resolvConf").and_then(Value::as_str) == Some("") {
        problems.push(
            "resolvConf: a pod without a resolver configuration of its node is not supported".to_owned(),
        );
    }
    problems
}

fn shutdown(own: &Document<'_>) -> Vec<String> {
    const ALL: &str = "shutdownGracePeriod";
    const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
    const SECOND: i64 = 1_000_000_000;
    let (all, critical) = (own.duration(ALL), own.duration(CRITICAL));
    // As Go prints the struct around a duration.
    let text = |duration| format!("{{{}}}", write_duration(duration));
    let mut problems = Vec::new();
    if critical > all {
        problems.push(format!(
            "{CRITICAL} {} must be <= {ALL} {}",
            text(critical),
            text(all)
        ));
    }
    for (path, period) in [(ALL, all), (CRITICAL, critical)] {
        if period < 0 || (1..SECOND).contains(&period) {
            problems.push(format!(
                "{path} {} must be either zero or otherwise >= 1 sec",
                text(period)
            ));
        }
    }
    let by_priority = own
        .value("shutdownGracePeriodByPodPriority")
        .and_then(Value::as_array);
    if by_priority.is_some() && (all > 0 || critical > 0) {
        problems.push(format!(
            "Cannot specify both {ALL}ByPodPriority and {ALL} at the same time"
        ));
    }
    // Upstream's takes what would be a period that is over before it begins.
    let is_negative = |period: &&Value| {
        let seconds = period.get("shutdownGracePeriodSeconds").and_then(Value::as_i64);
        seconds.is_some_and(|seconds| seconds < 0)
    };
    let negative = by_priority.into_iter().flatten().filter(is_negative);
    problems.extend(
        negative.map(|_| format!("{ALL}ByPodPriority: shutdownGracePeriodSeconds must not be negative")),
    );
    problems
}

fn taints(document: &Map<String, Value>) -> Vec<String> {
    let taints = document.get("registerWithTaints").and_then(Value::as_array);
    let timed = taints.into_iter().flatten().filter(|taint| {
        let time = taint.get("timeAdded");
        time.is_some_and(|time| !time.is_null())
    });
    timed.map(|_| "taint.TimeAdded is not nil".to_owned()).collect()
}
