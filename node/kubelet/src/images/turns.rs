//! Turns of work that takes long by the doing of others, as a pull or a plugin does, shared by namespace.
//!
//! A bounded number goes on at once. Where several wait, the namespace with the fewest turns is next, and of equals the one whose turn is
//! longest ago. With more than one turn no namespace has all of them: one stays free for the others, so that a registry which sends a byte
//! a minute holds up the pods of its own namespace alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    most: usize,
    taken: usize,
    /// Number of the last turn that was given.
    last: u64,
    namespaces: BTreeMap<String, Share>,
}

#[derive(Debug, Default)]
struct Share {
    taken: usize,
    /// Number of its last turn.
    last: u64,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// A turn, as long as it is kept.
#[derive(Debug)]
pub(crate) struct Turn {
    of: Turns,
    namespace: String,
}

impl Turns {
    /// So many turns at once.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            most: most.max(1),
            taken: 0,
            last: 0,
            namespaces: BTreeMap::new(),
        })))
    }

    /// Waits for a turn of a namespace.
    pub(crate) async fn take(&self, namespace: &str) -> Turn {
        loop {
            let (turn, given) = oneshot::channel();
            let share = |state: &mut State| {
                let share = state.namespaces.entry(namespace.to_owned()).or_default();
                share.waiting.push_back(turn);
            };
            share(&mut self.0.lock());
            self.give();
            // The sender is dropped with the turns alone.
            if let Ok(turn) = given.await {
                return turn;
            }
        }
    }

    /// Gives turns to those that wait, as many as there are.
    fn give(&self) {
        loop {
            let (waiting, turn) = {
                let mut state = self.0.lock();
                let Some(namespace) = state.next() else { return };
                let waiting = state.begin(&namespace);
                let of = self.clone();
                (waiting, Turn { of, namespace })
            };
            // Outside of the lock: one whose waiter has gone comes back here and is dropped, which gives it to the next.
            drop(waiting.map(|waiting| waiting.send(turn)));
        }
    }
}

impl State {
    /// The namespace that is next.
    fn next(&mut self) -> Option<String> {
        for share in self.namespaces.values_mut() {
            share.waiting.retain(|waiting| !waiting.is_closed());
        }
        self.namespaces
            .retain(|_, share| share.taken > 0 || !share.waiting.is_empty());
        if self.taken >= self.most {
            return None;
        }
        let share_max = self.most.saturating_sub(1).max(1);
        let may = self
            .namespaces
            .iter()
            .filter(|(_, share)| !share.waiting.is_empty() && share.taken < share_max);
        let next = may.min_by_key(|(_, share)| (share.taken, share.last));
        next.map(|(namespace, _)| namespace.clone())
    }

    fn begin(&mut self, namespace: &str) -> Option<oneshot::Sender<Turn>> {
        self.taken += 1;
        self.last += 1;
        let last = self.last;
        let share = self.namespaces.get_mut(namespace)?;
        share.taken += 1;
        share.last = last;
        share.waiting.pop_front()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut state = self.of.0.lock();
            state.taken -= 1;
            if let Some(share) = state.namespaces.get_mut(&self.namespace) {
                share.taken -= 1;
            }
        }
        self.of.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    /// A turn, where it is given at once.
    fn now(turns: &Turns, namespace: &str) -> Option<Turn> {
        turns.take(namespace).now_or_never()
    }

    #[test]
    fn turns_of_one_namespace_leave_one_to_others() {
        let turns = Turns::new(3);
        let held: Vec<Turn> = std::iter::from_fn(|| now(&turns, "a")).collect();
        assert_eq!(held.len(), 2);
        let other = now(&turns, "b");
        assert!(other.is_some() && now(&turns, "c").is_none());
        drop(held);
        assert!(now(&turns, "c").is_some());
        let single = Turns::new(1);
        let held = now(&single, "a");
        assert!(held.is_some() && now(&single, "b").is_none());
    }

    #[test]
    fn turn_goes_to_the_namespace_with_the_fewest_and_then_to_the_one_that_waited_longest() {
        let turns = Turns::new(1);
        let held = now(&turns, "a").unwrap();
        let mut waiting: Vec<_> = ["a", "a", "b", "c"]
            .into_iter()
            .map(|namespace| Box::pin(turns.take(namespace)))
            .collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        drop(held);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            // Each that has its turn gives it on.
            waiting.retain_mut(|one| match one.as_mut().now_or_never() {
                Some(turn) => {
                    order.push(turn.namespace.clone());
                    false
                }
                None => true,
            });
        }
        assert_eq!(order, ["b", "c", "a", "a"]);
    }

    #[test]
    fn turn_of_a_waiter_that_has_gone_is_given_to_the_next() {
        let turns = Turns::new(1);
        let held = now(&turns, "a");
        let mut gone = Box::pin(turns.take("b"));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(turns.take("c"));
        assert!(next.as_mut().now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(next.as_mut().now_or_never().is_some());
        assert_eq!(turns.0.lock().taken, 0);
    }
}
