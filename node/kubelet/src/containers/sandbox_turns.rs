//! Turns of sandboxes: so many start at once, those of critical pods first, and the others as they came.
//!
//! A hundred pods that start together make a hundred sandboxes, each a process with namespaces and a network: all at once they
//! take the machine from each other, and none is ready for long, the DNS server's or the network's as little as any. One turn is
//! kept for critical pods, so that sandboxes which hang, as for want of a network that a critical pod brings, do not hold it up.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Turns by core of the machine.
const PER_CORE: u64 = 2;
/// Bounds of their number.
const LEAST: u64 = 4;
const MOST: u64 = 32;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct SandboxTurns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    most: usize,
    taken: usize,
    arrivals: u64,
    /// In the order in which they are next.
    waiting: BTreeMap<Place, oneshot::Sender<SandboxTurn>>,
}

/// Place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    rank: Rank,
    arrival: u64,
}

/// Rank of a pod, the first first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Static pods, and those of the priority of the system's own.
    Critical,
    /// All others.
    Usual,
}

/// A turn, as long as it is kept.
#[derive(Debug)]
pub(crate) struct SandboxTurn(SandboxTurns);

impl SandboxTurns {
    /// Turns for a machine of so many cores.
    pub(crate) fn of_cores(cores: u64) -> Self {
        let most = cores.saturating_mul(PER_CORE).clamp(LEAST, MOST);
        Self::new(usize::try_from(most).unwrap_or(usize::MAX))
    }

    fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            most,
            taken: 0,
            arrivals: 0,
            waiting: BTreeMap::new(),
        })))
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, rank: Rank) -> SandboxTurn {
        loop {
            let (turn, given) = oneshot::channel();
            {
                let mut state = self.0.lock();
                state.arrivals += 1;
                let arrival = state.arrivals;
                state.waiting.insert(Place { rank, arrival }, turn);
            }
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
            let Some(next) = self.0.lock().next() else { return };
            // Outside of the lock: one whose waiter has gone comes back here and is dropped, which gives it to the next.
            drop(next.send(SandboxTurn(self.clone())));
        }
    }
}

impl State {
    /// The one that is next, whose turn counts as taken.
    fn next(&mut self) -> Option<oneshot::Sender<SandboxTurn>> {
        self.waiting.retain(|_, waiting| !waiting.is_closed());
        let (place, _) = self.waiting.first_key_value()?;
        let most = match place.rank {
            Rank::Critical => self.most,
            Rank::Usual => self.most.saturating_sub(1).max(1),
        };
        if self.taken >= most {
            return None;
        }
        self.taken += 1;
        self.waiting.pop_first().map(|(_, waiting)| waiting)
    }
}

impl Drop for SandboxTurn {
    fn drop(&mut self) {
        self.0.0.lock().taken -= 1;
        self.0.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    /// A turn, where it is given at once.
    fn now(turns: &SandboxTurns, rank: Rank) -> Option<SandboxTurn> {
        turns.take(rank).now_or_never()
    }

    #[test]
    fn sandbox_turns_are_bounded_by_cores_and_one_is_for_critical_pods() {
        for (cores, most) in [(0, 4), (2, 4), (8, 16), (1 << 40, 32)] {
            let turns = SandboxTurns::of_cores(cores);
            let held: Vec<_> = std::iter::from_fn(|| now(&turns, Rank::Usual)).collect();
            assert_eq!(held.len(), most - 1, "{cores}");
            let critical = now(&turns, Rank::Critical);
            assert!(critical.is_some() && now(&turns, Rank::Critical).is_none());
        }
    }

    #[test]
    fn sandbox_turn_goes_to_critical_pods_and_then_to_the_one_that_came_first() {
        let turns = SandboxTurns::new(2);
        let mut held = vec![now(&turns, Rank::Usual).unwrap()];
        held.push(now(&turns, Rank::Critical).unwrap());
        let order = [
            Rank::Usual,
            Rank::Usual,
            Rank::Critical,
            Rank::Usual,
            Rank::Critical,
        ];
        let mut waiting: Vec<_> = order.iter().map(|rank| Box::pin(turns.take(*rank))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        held.clear();
        let mut begun = Vec::new();
        let mut left: Vec<_> = waiting.into_iter().enumerate().collect();
        while !left.is_empty() {
            let mut given = Vec::new();
            left.retain_mut(|(number, one)| match one.as_mut().now_or_never() {
                Some(turn) => {
                    given.push((*number, turn));
                    false
                }
                None => true,
            });
            assert!(!given.is_empty(), "a turn is lost");
            begun.push(given.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        }
        assert_eq!(begun, [vec![2, 4], vec![0], vec![1], vec![3]]);
    }

    #[test]
    fn sandbox_turn_of_a_pod_that_has_gone_is_given_to_the_next() {
        let turns = SandboxTurns::new(2);
        let held = now(&turns, Rank::Usual);
        let mut gone = Box::pin(turns.take(Rank::Usual));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(turns.take(Rank::Usual));
        assert!(next.as_mut().now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(next.as_mut().now_or_never().is_some());
        assert_eq!(turns.0.lock().taken, 0);
    }
}
