//! Turns of namespaces at changes whose keys take long to find.

use super::DearChanges;
use futures::FutureExt;
use machinery_runtime::Simulation;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

type Side = Option<&'static str>;

/// Objects that are looked at, in order, of changes that were all there at the beginning.
fn looked_at(changes: Vec<(&'static str, Side, Side)>) -> Vec<(Side, Side)> {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let (waiting, seen) = (DearChanges::new(&runtime), Mutex::new(Vec::new()));
        for (object, old, new) in changes {
            waiting.add(object.to_owned(), old, new);
        }
        let running = waiting.run(|old, new| seen.lock().push((old, new)));
        assert!(runtime.timeout(Duration::from_secs(1), running).await.is_err());
        seen.into_inner()
    })
}

#[test]
fn dear_changes_pass_from_namespace_to_namespace() {
    let changes = vec![
        ("many/1", None, Some("1")),
        ("many/2", None, Some("2")),
        ("many/3", None, Some("3")),
        ("few/4", None, Some("4")),
    ];
    let order: Vec<Side> = looked_at(changes).into_iter().map(|(_, new)| new).collect();
    assert_eq!(order, [Some("1"), Some("4"), Some("2"), Some("3")]);
}

#[test]
fn dear_changes_of_one_object_are_looked_at_as_one() {
    let changes = vec![
        ("a/changed", Some("before"), Some("between")),
        ("a/fleeting", None, Some("here")),
        ("a/changed", Some("between"), Some("now")),
        ("a/fleeting", Some("here"), None),
        ("a/gone", Some("before"), Some("between")),
        ("a/gone", Some("between"), None),
    ];
    let expected = [(Some("before"), Some("now")), (Some("before"), None)];
    assert_eq!(looked_at(changes), expected);
}

/// Looks, as it is replaced, for a turn that came before its change.
struct Replaced {
    changes: Weak<DearChanges<Self>>,
    is_early: Arc<AtomicBool>,
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let changes = self.changes.upgrade();
        if changes.is_some_and(|all| all.turns.next().now_or_never().is_some()) {
            self.is_early.store(true, Ordering::Relaxed);
        }
    }
}

/// The controller, on another thread, takes a turn as soon as it is there: without its change it would come to nothing.
#[test]
fn dear_changes_are_there_before_their_turns() {
    let simulation = Simulation::new(1);
    let changes = Arc::new(DearChanges::new(&simulation.runtime()));
    let is_early = Arc::<AtomicBool>::default();
    let add = || {
        let new = Replaced {
            changes: Arc::downgrade(&changes),
            is_early: Arc::clone(&is_early),
        };
        changes.add("a/1".to_owned(), None, Some(new));
    };
    add();
    assert!(changes.turns.next().now_or_never().is_some());
    add();
    assert!(!is_early.load(Ordering::Relaxed));
    assert!(changes.turns.next().now_or_never().is_some());
}
