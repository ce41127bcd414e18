//! Times since which nodes have been missing.

use super::QUARANTINE;
use machinery_meta::ObjectKey;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock for each missing node whose pods were checked; bounded by the number of such nodes and those of the last
/// [`QUARANTINE`].
#[derive(Debug, Default)]
pub(super) struct MissingNodes(Mutex<Clocks>);

#[derive(Debug, Default)]
struct Clocks {
    since: BTreeMap<ObjectKey, Duration>,
    /// The next time at which clocks that have no pods are dropped.
    sweep_at: Duration,
}

impl MissingNodes {
    /// A node has come or gone: its clock restarts.
    pub(super) fn changed(&self, node: &ObjectKey) {
        self.clocks().since.remove(node);
    }

    /// Returns the time that a node has been missing; the first call starts the clock. All nodes are checked for pods once in a
    /// quarantine: checked with each pod, many nodes that go at once would be checked as often as they have pods together.
    pub(super) fn missed_for(
        &self,
        node: &ObjectKey,
        now: Duration,
        has_pods: impl Fn(&ObjectKey) -> bool,
    ) -> Duration {
        let mut clocks = self.clocks();
        if now >= clocks.sweep_at {
            clocks.since.retain(|own, _| own == node || has_pods(own));
            clocks.sweep_at = now + QUARANTINE;
        }
        let since = *clocks.since.entry(node.clone()).or_insert(now);
        now.saturating_sub(since)
    }

    /// Reports whether a node has been missed for so long that its pods go.
    pub(super) fn is_lost(&self, node: &ObjectKey, now: Duration) -> bool {
        let clocks = self.clocks();
        let since = clocks.since.get(node);
        since.is_some_and(|since| now.saturating_sub(*since) >= QUARANTINE)
    }

    fn clocks(&self) -> MutexGuard<'_, Clocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn missing_nodes_are_asked_for_pods_once_in_a_quarantine() {
        let (missing, lookups) = (MissingNodes::default(), Cell::new(0));
        let node = |at: usize| ObjectKey::cluster(format!("n{at}"));
        // A thousand nodes go, each of ten pods; half of the nodes have none in the end.
        let look = |at: usize, now: Duration| {
            missing.missed_for(&node(at), now, |own| {
                lookups.set(lookups.get() + 1);
                own.name.ends_with(['0', '2', '4', '6', '8'])
            })
        };
        for at in 0..10_000 {
            assert_eq!(look(at % 1_000, Duration::from_secs(1)), Duration::ZERO);
        }
        assert_eq!(lookups.get(), 0, "the first sweep has nothing to ask");
        for at in 0..10_000 {
            look(at % 1_000, Duration::from_secs(41));
        }
        assert_eq!(lookups.get(), 999);
        assert_eq!(
            look(2, Duration::from_secs(42)),
            QUARANTINE + Duration::from_secs(1)
        );
        assert_eq!(
            look(3, Duration::from_secs(42)),
            Duration::from_secs(1),
            "dropped and begun anew"
        );
    }

    #[test]
    fn clock_of_node_that_comes_and_goes_starts_anew() {
        let (missing, node) = (MissingNodes::default(), ObjectKey::cluster("n"));
        let look = |now| missing.missed_for(&node, Duration::from_secs(now), |_| true);
        look(1);
        assert!(missing.is_lost(&node, Duration::from_secs(41)));
        missing.changed(&node);
        assert!(!missing.is_lost(&node, Duration::from_secs(41)));
        assert_eq!(look(50), Duration::ZERO);
    }
}
