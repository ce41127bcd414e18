//! Turns: of operations on one thing only one goes on at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Table = Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>;

/// The things on which operations go on, or wait to.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Table>);

/// A turn; it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    table: Arc<Table>,
    thing: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn on a thing.
    pub(super) async fn of(&self, thing: &str) -> Turn {
        let own = self.0.lock().entry(thing.to_owned()).or_default().clone();
        // Before the wait: one that is dropped in it leaves nothing behind, either.
        let mut turn = Turn {
            table: self.0.clone(),
            thing: thing.to_owned(),
            held: None,
        };
        turn.held = Some(own.lock_owned().await);
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        self.held = None;
        // Under the table's lock no other call comes: the table's is the last, where none waits.
        if table
            .get(&self.thing)
            .is_some_and(|own| Arc::strong_count(own) == 1)
        {
            table.remove(&self.thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn turn_on_a_thing_is_one_at_a_time_and_leaves_nothing() {
        let turns = Turns::default();
        let first = turns.of("a").await;
        assert!(turns.of("b").now_or_never().is_some(), "another thing");
        let mut second = Box::pin(turns.of("a"));
        assert!(second.as_mut().now_or_never().is_none());
        let dropped = turns.of("a");
        assert!(dropped.now_or_never().is_none());
        drop(first);
        drop(second.await);
        assert!(turns.0.lock().is_empty());
    }
}
