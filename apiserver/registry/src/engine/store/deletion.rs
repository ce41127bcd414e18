//! Decisions of a delete: the rules of grace, finalizers and propagation, without storage.

use crate::engine::options::{DeleteOptions, Propagation};
use jiff::{SignedDuration, Timestamp};

/// The finalizer that lets dependents outlive their owner.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that makes an owner wait for its dependents.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";

/// Treatment of a kind's dependents if a delete requests none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GarbagePolicy {
    #[default]
    Background,
    /// Kept, for kinds whose first clients expected it (Job, ReplicationController).
    Orphan,
    /// The kind takes no part in garbage collection (Event).
    Unsupported,
}

/// Properties of an object that the decision depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deletable {
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub finalizers: Vec<String>,
    pub generation: i64,
    /// The grace period the kind grants, when it deletes gracefully at all.
    pub graceful: Option<i64>,
}

/// The metadata a mark leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub deletion_timestamp: Timestamp,
    pub deletion_grace_period_seconds: i64,
    pub finalizers: Vec<String>,
    pub generation: i64,
}

/// The step that a delete takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionStep {
    RemoveNow,
    /// Write the mark; then remove as well when nothing holds the object.
    MarkDeleting {
        mark: Mark,
        then_remove: bool,
    },
    /// An earlier request deleted it and nothing changes.
    AlreadyDeleting,
}

/// Decides; `now` has whole seconds.
pub fn deletion_step(
    object: &Deletable,
    options: &DeleteOptions,
    policy: GarbagePolicy,
    now: Timestamp,
) -> DeletionStep {
    let grace = graceful_step(object, options, now);
    if grace == Grace::Pending {
        return DeletionStep::AlreadyDeleting;
    }
    let finalizers = finalizers_after(object, options, policy);
    let held = !finalizers.is_empty();
    let changed = finalizers != object.finalizers;
    match grace {
        Grace::Marked {
            deletion_timestamp,
            seconds,
            bump,
        } => DeletionStep::MarkDeleting {
            mark: Mark {
                deletion_timestamp,
                deletion_grace_period_seconds: seconds,
                finalizers,
                generation: bumped(object.generation, bump),
            },
            then_remove: !held && seconds == 0,
        },
        Grace::Pending => DeletionStep::AlreadyDeleting,
        Grace::None if held => hold(object, finalizers, changed, now),
        Grace::None => DeletionStep::RemoveNow,
    }
}

/// Without grace, finalizers keep the object: it is marked with a grace period of zero.
fn hold(object: &Deletable, finalizers: Vec<String>, changed: bool, now: Timestamp) -> DeletionStep {
    let known = object.deletion_timestamp.filter(|known| *known <= now);
    if known.is_some() && object.deletion_grace_period_seconds == Some(0) && !changed {
        return DeletionStep::AlreadyDeleting;
    }
    DeletionStep::MarkDeleting {
        mark: Mark {
            deletion_timestamp: known.unwrap_or(now),
            deletion_grace_period_seconds: 0,
            finalizers,
            generation: bumped(object.generation, object.deletion_timestamp.is_none()),
        },
        then_remove: false,
    }
}

fn bumped(generation: i64, bump: bool) -> i64 {
    if bump && generation > 0 {
        generation + 1
    } else {
        generation
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    /// The kind, or this object, is not deleted gracefully.
    None,
    /// A graceful deletion runs and this one does not shorten it.
    Pending,
    Marked {
        deletion_timestamp: Timestamp,
        seconds: i64,
        bump: bool,
    },
}

fn graceful_step(object: &Deletable, options: &DeleteOptions, now: Timestamp) -> Grace {
    let Some(granted) = object.graceful else {
        return Grace::None;
    };
    let requested = options.grace_period_seconds.map(at_least_none);
    if let Some(since) = object.deletion_timestamp {
        let running = object.deletion_grace_period_seconds.map(at_least_none);
        // A period that is over does not run: only finalizers may hold the object still.
        let Some(running) = running.filter(|running| *running > 0) else {
            return Grace::None;
        };
        return match requested {
            // Only a shorter period counts.
            Some(shorter) if shorter < running => Grace::Marked {
                deletion_timestamp: shifted(since, shorter - running),
                seconds: shorter,
                bump: false,
            },
            _ => Grace::Pending,
        };
    }
    let seconds = at_least_none(granted);
    Grace::Marked {
        deletion_timestamp: shifted(now, seconds),
        seconds,
        bump: true,
    }
}

/// Negative periods mean one second.
fn at_least_none(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

fn shifted(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(time)
}

/// The finalizers once the propagation policy has added or removed its own.
fn finalizers_after(object: &Deletable, options: &DeleteOptions, policy: GarbagePolicy) -> Vec<String> {
    let (orphan, foreground) = propagation(&object.finalizers, options, policy);
    let has = |name: &str| object.finalizers.iter().any(|own| own == name);
    if has(FINALIZER_ORPHAN) == orphan && has(FINALIZER_FOREGROUND) == foreground {
        return object.finalizers.clone();
    }
    let kept = object
        .finalizers
        .iter()
        .filter(|own| *own != FINALIZER_ORPHAN && *own != FINALIZER_FOREGROUND);
    let mut finalizers: Vec<String> = kept.cloned().collect();
    if orphan {
        finalizers.push(FINALIZER_ORPHAN.into());
    }
    if foreground {
        finalizers.push(FINALIZER_FOREGROUND.into());
    }
    finalizers
}

/// Reports whether to orphan dependents and whether to wait for them: by the options first, then by the object's
/// finalizers, then by the kind.
fn propagation(finalizers: &[String], options: &DeleteOptions, policy: GarbagePolicy) -> (bool, bool) {
    if policy == GarbagePolicy::Unsupported {
        return (false, false);
    }
    if let Some(orphan) = options.orphan_dependents {
        return (orphan, false);
    }
    match options.propagation {
        Some(Propagation::Orphan) => return (true, false),
        Some(Propagation::Foreground) => return (false, true),
        Some(Propagation::Background) => return (false, false),
        None => {}
    }
    for own in finalizers {
        match own.as_str() {
            FINALIZER_ORPHAN => return (true, false),
            FINALIZER_FOREGROUND => return (false, true),
            _ => {}
        }
    }
    (policy == GarbagePolicy::Orphan, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[track_caller]
    fn check(object: Deletable, options: DeleteOptions, policy: GarbagePolicy, expected: &str) {
        let found = match deletion_step(&object, &options, policy, at(NOW)) {
            DeletionStep::RemoveNow => "remove".to_owned(),
            DeletionStep::AlreadyDeleting => "already".to_owned(),
            DeletionStep::MarkDeleting { mark, then_remove } => format!(
                "mark at {} grace {} gen {} [{}]{}",
                mark.deletion_timestamp.as_second() - NOW,
                mark.deletion_grace_period_seconds,
                mark.generation,
                mark.finalizers.join(","),
                if then_remove { " remove" } else { "" }
            ),
        };
        assert_eq!(found, expected);
    }

    fn finalized(names: &[&str]) -> Deletable {
        Deletable {
            finalizers: names.iter().map(|n| (*n).into()).collect(),
            generation: 3,
            ..Deletable::default()
        }
    }

    fn propagate(propagation: Propagation) -> DeleteOptions {
        DeleteOptions {
            propagation: Some(propagation),
            ..DeleteOptions::default()
        }
    }

    fn grace(seconds: i64) -> DeleteOptions {
        DeleteOptions {
            grace_period_seconds: Some(seconds),
            ..DeleteOptions::default()
        }
    }

    #[test]
    fn deletion_step_table() {
        use GarbagePolicy::{Background, Orphan, Unsupported};
        let plain = || finalized(&[]);
        check(plain(), DeleteOptions::default(), Background, "remove");
        check(
            plain(),
            DeleteOptions::default(),
            Orphan,
            "mark at 0 grace 0 gen 4 [orphan]",
        );
        check(plain(), propagate(Propagation::Background), Orphan, "remove");
        check(
            plain(),
            propagate(Propagation::Foreground),
            Background,
            "mark at 0 grace 0 gen 4 [foregroundDeletion]",
        );
        check(plain(), propagate(Propagation::Foreground), Unsupported, "remove");
        check(
            finalized(&["a/b"]),
            DeleteOptions::default(),
            Background,
            "mark at 0 grace 0 gen 4 [a/b]",
        );
        check(
            finalized(&["orphan"]),
            propagate(Propagation::Background),
            Background,
            "remove",
        );
        check(
            finalized(&["a/b"]),
            propagate(Propagation::Orphan),
            Background,
            "mark at 0 grace 0 gen 4 [a/b,orphan]",
        );
        let deleting = Deletable {
            deletion_timestamp: Some(at(NOW - 5)),
            deletion_grace_period_seconds: Some(0),
            ..finalized(&["a/b"])
        };
        check(deleting.clone(), DeleteOptions::default(), Background, "already");
        check(
            deleting,
            propagate(Propagation::Orphan),
            Background,
            "mark at -5 grace 0 gen 3 [a/b,orphan]",
        );
    }

    #[test]
    fn policy_of_a_later_delete_counts_once_grace_is_over() {
        let held = Deletable {
            deletion_timestamp: Some(at(NOW - 5)),
            deletion_grace_period_seconds: Some(0),
            graceful: Some(30),
            ..finalized(&["a/b"])
        };
        let background = GarbagePolicy::Background;
        check(held.clone(), DeleteOptions::default(), background, "already");
        check(
            held,
            propagate(Propagation::Foreground),
            background,
            "mark at -5 grace 0 gen 3 [a/b,foregroundDeletion]",
        );
    }

    #[test]
    fn grace_periods() {
        let pod = |graceful| Deletable {
            graceful: Some(graceful),
            generation: 1,
            ..Deletable::default()
        };
        let background = GarbagePolicy::Background;
        check(
            pod(30),
            DeleteOptions::default(),
            background,
            "mark at 30 grace 30 gen 2 []",
        );
        check(pod(0), grace(0), background, "mark at 0 grace 0 gen 2 [] remove");
        check(pod(-3), grace(-3), background, "mark at 1 grace 1 gen 2 []");
        let running = |graceful| Deletable {
            deletion_timestamp: Some(at(NOW + 20)),
            deletion_grace_period_seconds: Some(30),
            ..pod(graceful)
        };
        check(running(30), DeleteOptions::default(), background, "already");
        check(running(40), grace(40), background, "already");
        check(running(5), grace(5), background, "mark at -5 grace 5 gen 1 []");
        check(
            running(0),
            grace(0),
            background,
            "mark at -10 grace 0 gen 1 [] remove",
        );
    }
}
