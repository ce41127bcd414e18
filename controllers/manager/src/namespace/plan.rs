//! Conditions of a namespace that is being deleted. Pure.

use crate::views::{Condition, find};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Bytes of a failure, of a finalizer's name, and of a condition's message: API extensions write them, and conditions must be
/// short enough to be stored.
const MAX_FAILURE_BYTES: usize = 1 << 10;
const MAX_FINALIZER_BYTES: usize = 256;
const MAX_MESSAGE_BYTES: usize = 16 << 10;
/// Finalizers that are counted, each by its name.
const MAX_FINALIZERS: usize = 64;

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

    /// Notes a failure.
    pub(super) fn failed(&mut self, why: String) {
        self.failures.push(cut(why, MAX_FAILURE_BYTES));
    }

    /// Notes a finalizer of an object that is left.
    pub(super) fn finalizer(&mut self, name: &str) {
        let is_known = self.finalizers.contains_key(name);
        // Tenants choose the names of finalizers; the message must stay within what a condition may have.
        if is_known || self.finalizers.len() < MAX_FINALIZERS && name.len() <= MAX_FINALIZER_BYTES {
            *self.finalizers.entry(name.to_owned()).or_default() += 1;
        }
    }
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
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
            Some((reason, message)) => {
                Condition::new(kind, "True", reason, cut(message, MAX_MESSAGE_BYTES), now)
            }
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

    #[test]
    fn namespace_conditions_stay_short_whatever_extensions_say() {
        let mut findings = Findings::default();
        for number in 0..1_000 {
            findings.failed("é".repeat(10_000));
            findings.finalizer(&format!("example.com/{number}"));
            findings.finalizer("example.com/0");
            findings.finalizer(&"f".repeat(10_000));
        }
        assert_eq!(findings.finalizers.len(), MAX_FINALIZERS);
        assert_eq!(findings.finalizers["example.com/0"], 1_001);
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let all = conditions(&[], &findings, now);
        let lengths = all.iter().map(|own| own.message.len());
        let longest = lengths.max().unwrap();
        assert!(
            (MAX_MESSAGE_BYTES - 1..=MAX_MESSAGE_BYTES).contains(&longest),
            "{longest}"
        );
        assert_eq!(findings.failures.len(), 1_000, "the number is that of all");
    }
}
