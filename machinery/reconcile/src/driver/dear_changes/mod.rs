//! Changes whose keys take long to find: looked at in turns of their namespaces, and not while the cache hands them on.
//!
//! A namespace has as many owners as it likes, and each of its orphans is compared with all of them. A namespace whose change
//! took long rests in proportion ([`TurnQueue`]), and changes of one object that come meanwhile are looked at as one.

use machinery_client::TurnQueue;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Changes that wait for their turns, one of each object: its state before, and now.
pub(super) struct DearChanges<T> {
    turns: TurnQueue,
    waiting: Mutex<HashMap<String, Sides<T>>>,
    runtime: Runtime,
}

type Sides<T> = (Option<T>, Option<T>);

impl<T> DearChanges<T> {
    pub(super) fn new(runtime: &Runtime) -> Self {
        Self {
            turns: TurnQueue::new(runtime.clone()),
            waiting: Mutex::default(),
            runtime: runtime.clone(),
        }
    }

    /// Puts a change of an object (`namespace/name`) in line; with one that waits it becomes the change from before that to now.
    pub(super) fn add(&self, object: String, old: Option<T>, new: Option<T>) {
        let mut waiting = self.waiting.lock();
        let old = match waiting.remove(&object) {
            Some((before, _)) => before,
            None => old,
        };
        // What came and went meanwhile has changed nothing.
        if old.is_none() && new.is_none() {
            return;
        }
        waiting.insert(object.clone(), (old, new));
        drop(waiting);
        // Last: a turn that comes before its change would find nothing, and none would come after it.
        self.turns.add(&object);
    }

    /// Hands on changes in their turns, for ever.
    pub(super) async fn run(&self, look: impl Fn(Option<T>, Option<T>)) {
        loop {
            let turn = self.turns.next().await;
            let Some((old, new)) = self.waiting.lock().remove(&*turn.object) else {
                continue;
            };
            let begun = self.runtime.monotonic();
            look(old, new);
            let took = self.runtime.monotonic().saturating_sub(begun);
            self.turns.worked(&turn.object, took);
            // The controller's own work goes on after each.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests;
