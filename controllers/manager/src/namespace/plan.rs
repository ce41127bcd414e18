//! Conditions of a namespace that is being deleted. Pure.

use crate::views::{Condition, find};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Findings of one round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Group versions that could not be discovered.
    pub(super) discovery: Vec<String>,
    /// Failed deletes and lists.
    pub(super) failures: Vec<String>,
    /// Objects left, by resource.
    pub(super) remaining: BTreeMap<String, usize>,
    /// Objects left with each finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Seconds that the remaining objects may still take, as far as they state it.
    pub(super) estimate_seconds: i64,
}

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.discovery.is_empty() && self.failures.is_empty() && self.remaining.is_empty()
    }
}

/// The five conditions, in upstream's order and words; what did not change keeps its time.
pub(super) fn conditions(old: &[Condition], findings: &Findings, now: Timestamp) -> Vec<Condition> {
    let discovery = failure(
        &findings.discovery,
        "Discovery failed for some groups, ",
        " failing: ",
    );
    let deletion = failure(
        &findings.failures,
        "Failed to delete all resource types, ",
        " remaining: ",
    );
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            discovery.map(|message| ("DiscoveryFailed", message)),
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            deletion.map(|message| ("ContentDeletionFailed", message)),
            (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        (
            "NamespaceContentRemaining",
            remaining(&findings.remaining).map(|message| ("SomeResourcesRemain", message)),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            finalizers(&findings.finalizers).map(|message| ("SomeFinalizersRemain", message)),
            (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ),
    ];
    let ours: Vec<&str> = wanted.iter().map(|(kind, ..)| *kind).collect();
    let mut out: Vec<Condition> = old
        .iter()
        .filter(|own| !ours.contains(&own.kind.as_str()))
        .cloned()
        .collect();
    for (kind, bad, (reason, message)) in wanted {
        let mut new = match bad {
            Some((reason, message)) => Condition::new(kind, "True", reason, message, now),
            None => Condition::new(kind, "False", reason, message, now),
        };
        if let Some(old) = find(old, kind).filter(|old| old.status == new.status) {
            new.last_transition_time.clone_from(&old.last_transition_time);
        }
        out.push(new);
    }
    out
}

fn failure(all: &[String], before: &str, between: &str) -> Option<String> {
    (!all.is_empty()).then(|| format!("{before}{}{between}{}", all.len(), all.join(", ")))
}

fn remaining(all: &BTreeMap<String, usize>) -> Option<String> {
    let each: Vec<_> = all
        .iter()
        .map(|(resource, count)| format!("{resource} has {count} resource instances"))
        .collect();
    (!each.is_empty()).then(|| format!("Some resources are remaining: {}", each.join(", ")))
}

fn finalizers(all: &BTreeMap<String, usize>) -> Option<String> {
    let each: Vec<_> = all
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    (!each.is_empty()).then(|| {
        format!(
            "Some content in the namespace has finalizers remaining: {}",
            each.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_conditions_name_what_blocks_deletion() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let findings = Findings {
            remaining: [("pods.".to_owned(), 2)].into(),
            finalizers: [("example.com/f".to_owned(), 1)].into(),
            ..Findings::default()
        };
        let all = conditions(&[], &findings, now);
        let message = |kind: &str| find(&all, kind).unwrap().message.clone();
        assert_eq!(
            message("NamespaceContentRemaining"),
            "Some resources are remaining: pods. has 2 resource instances"
        );
        assert_eq!(
            message("NamespaceFinalizersRemaining"),
            "Some content in the namespace has finalizers remaining: example.com/f in 1 resource instances"
        );
        assert_eq!(
            find(&all, "NamespaceDeletionContentFailure").unwrap().status,
            "False"
        );
        let later = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(
            conditions(&all, &findings, later),
            all,
            "what did not change keeps its time"
        );
    }
}
