//! Defaults of Deployments.

use crate::kinds::apps::defaults::rolling;
use machinery_schema::{Tree, Value};

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.progressDeadlineSeconds=600",
    "spec.replicas=1",
    "spec.revisionHistoryLimit=10",
];

/// A strategy with numbers.
pub(super) fn set(object: &mut Tree) {
    let numbers = [
        ("maxUnavailable", Value::Str("25%")),
        ("maxSurge", Value::Str("25%")),
    ];
    rolling(object, "strategy", &numbers);
}
