//! Counts and conditions, from what was planned and what became of it.

use super::plan::Plan;
use crate::views::{Condition, ReplicaSetStatus, SetView, find};
use jiff::Timestamp;
use machinery_client::Object;

/// Reason why the last round did not carry out its whole plan.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// `FailedCreate` or `FailedDelete`.
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The status that is true now.
pub(super) fn status<P: SetView>(
    set: &Object<P>,
    plan: &Plan,
    failure: Option<&Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let (view, header) = (set.view(), &set.header);
    let labels = &view.template.metadata.labels;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let fully = |pod: &&super::plan::PodRef| {
        labels
            .iter()
            .all(|(key, value)| pod.header.label(key) == Some(value))
    };
    let available = |pod: &&super::plan::PodRef| pod.is_available(view.min_ready_seconds, now);
    ReplicaSetStatus {
        replicas: count(plan.active.len()),
        fully_labeled_replicas: count(plan.active.iter().filter(fully).count()),
        ready_replicas: count(plan.active.iter().filter(|pod| pod.ready).count()),
        available_replicas: count(plan.active.iter().filter(available).count()),
        terminating_replicas: P::REPORTS_TERMINATING.then_some(plan.terminating),
        // Until every pod it made is seen, the set has not come to its size, and says so.
        observed_generation: if plan.settled {
            header.generation
        } else {
            view.status.observed_generation
        },
        conditions: conditions(&view.status.conditions, failure, now),
    }
}

/// Bytes of a message that a condition has: refusals may name every container of a template.
const MAX_MESSAGE: usize = 1_024;

fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE)]
}

/// `ReplicaFailure` stands while something fails, with its first reason and message.
fn conditions(old: &[Condition], failure: Option<&Failure>, now: Timestamp) -> Vec<Condition> {
    let mut out: Vec<_> = old
        .iter()
        .filter(|own| own.kind != "ReplicaFailure")
        .cloned()
        .collect();
    if let Some(failure) = failure {
        let new = Condition::new(
            "ReplicaFailure",
            "True",
            failure.reason,
            cut(&failure.message),
            now,
        );
        out.push(find(old, "ReplicaFailure").cloned().unwrap_or(new));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PodSecurity names every container of a template, of which there may be thousands.
    #[test]
    fn failure_of_a_set_has_a_bounded_message() {
        let failure = Failure {
            reason: "FailedCreate",
            message: "é".repeat(100_000),
        };
        let found = conditions(&[], Some(&failure), Timestamp::UNIX_EPOCH);
        assert_eq!(found[0].message.len(), MAX_MESSAGE);
    }
}
