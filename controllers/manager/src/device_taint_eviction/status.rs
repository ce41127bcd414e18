//! The condition of a rule, in upstream's words.

use super::view::{EVICTION_IN_PROGRESS, NO_EXECUTE, NONE, RuleCondition};

/// Numbers that a condition gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Devices of slices that a rule selects.
    pub(super) published: usize,
    /// The same of claims.
    pub(super) allocated: usize,
    pub(super) pending_pods: usize,
    pub(super) pending_namespaces: usize,
    /// Pods that ended because of the rule since the controller began.
    pub(super) evicted: u64,
}

/// The condition, without its time.
pub(super) fn condition(effect: &str, generation: i64, counts: Counts) -> RuleCondition {
    let (reason, mut message) = match effect {
        NO_EXECUTE => evicting(counts),
        NONE => ("NoEffect", tried_out(counts)),
        _ => (
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.".to_owned(),
        ),
    };
    if counts.evicted > 0 {
        if !message.is_empty() {
            message.push(' ');
        }
        let pods = number(counts.evicted, "pod", "pods");
        message.push_str(&format!("{pods} evicted since starting the controller."));
    }
    let is_pending = effect == NO_EXECUTE && counts.pending_pods > 0;
    RuleCondition {
        kind: EVICTION_IN_PROGRESS.into(),
        status: if is_pending { "True" } else { "False" }.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: None,
    }
}

fn evicting(counts: Counts) -> (&'static str, String) {
    if counts.pending_pods > 0 {
        let pods = number(counts.pending_pods, "pod needs", "pods need");
        return (
            "PodsPendingEviction",
            format!("{pods} to be evicted in {}.", namespaces(counts)),
        );
    }
    let reason = if counts.evicted > 0 {
        "Completed"
    } else {
        "NotStarted"
    };
    (reason, String::new())
}

fn tried_out(counts: Counts) -> String {
    format!(
        "{} selected. {} selected. {} would be evicted in {} if the effect was NoExecute. This information will not be updated \
         again. Recreate the DeviceTaintRule to trigger an update.",
        number(counts.published, "published device", "published devices"),
        number(counts.allocated, "allocated device", "allocated devices"),
        number(counts.pending_pods, "pod", "pods"),
        namespaces(counts)
    )
}

fn namespaces(counts: Counts) -> String {
    number(counts.pending_namespaces, "namespace", "different namespaces")
}

fn number<N: PartialEq + From<u8> + std::fmt::Display>(count: N, one: &str, many: &str) -> String {
    let word = if count == N::from(1) { one } else { many };
    format!("{count} {word}")
}
