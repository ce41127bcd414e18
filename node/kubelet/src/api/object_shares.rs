//! Shares of the ConfigMaps and Secrets that a node follows: each is a watch, and a connection to the API server.
//!
//! A pod follows a bounded number of objects. A namespace begins no watch where it has as many as are left, so that a greedy one
//! leaves half to the others (decision 0047's rule); a few objects of each pod are followed in any case.

use std::collections::HashMap;

use node_volume::VolumeError;
use parking_lot::Mutex;

const OBJECTS_OF_POD_MAX: usize = 256;
/// Objects of a pod that are followed however many the node follows.
const OBJECTS_OF_POD_ASSURED: usize = 4;
/// With those assured to 110 pods it is below what an API server takes of connections from one address (2,048).
const WATCHES_MAX: usize = 1_280;

/// Objects by pod and watches by namespace.
#[derive(Debug, Default)]
pub(super) struct ObjectShares(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    of_pods: HashMap<String, usize>,
    of_namespaces: HashMap<String, usize>,
    watches: usize,
}

impl ObjectShares {
    /// Counts one more object of a pod, for which a watch begins where none follows it yet.
    pub(super) fn take(&self, uid: &str, namespace: &str, begins: bool) -> Result<(), VolumeError> {
        let mut counts = self.0.lock();
        let of_pod = counts.of_pods.get(uid).copied().unwrap_or_default();
        if of_pod >= OBJECTS_OF_POD_MAX {
            return Err(VolumeError::Invalid(format!(
                "a pod must not use more than {OBJECTS_OF_POD_MAX} ConfigMaps and Secrets"
            )));
        }
        if begins {
            let of_namespace = counts.of_namespaces.get(namespace).copied().unwrap_or_default();
            let left = WATCHES_MAX.saturating_sub(counts.watches);
            if of_pod >= OBJECTS_OF_POD_ASSURED && of_namespace >= left {
                // Words that stay the same while counts change: each new text would be an event of its own.
                return Err(VolumeError::Source(format!(
                    "too many ConfigMaps and Secrets are in use on this node: this namespace has its share of the {WATCHES_MAX} of all"
                )));
            }
            *counts.of_namespaces.entry(namespace.to_owned()).or_default() += 1;
            counts.watches += 1;
        }
        *counts.of_pods.entry(uid.to_owned()).or_default() += 1;
        Ok(())
    }

    /// A watch has ended.
    pub(super) fn ended(&self, namespace: &str) {
        let mut counts = self.0.lock();
        counts.watches -= 1;
        if let Some(count) = counts.of_namespaces.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                counts.of_namespaces.remove(namespace);
            }
        }
    }

    /// The pod is gone.
    pub(super) fn forget_pod(&self, uid: &str) {
        self.0.lock().of_pods.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches that begin for a pod which wants `count` objects of its own.
    fn taken(shares: &ObjectShares, uid: &str, namespace: &str, count: usize) -> usize {
        let take = |_: &usize| shares.take(uid, namespace, true).is_ok();
        (0..count).filter(take).count()
    }

    #[test]
    fn objects_of_one_pod_are_bounded() {
        let shares = ObjectShares::default();
        assert_eq!(taken(&shares, "a", "n", 20_000), OBJECTS_OF_POD_MAX);
        let shared = shares.take("a", "n", false).unwrap_err().to_string();
        assert_eq!(shared, "a pod must not use more than 256 ConfigMaps and Secrets");
        assert_eq!(taken(&shares, "b", "n", 10), 10);
    }

    #[test]
    fn objects_of_one_namespace_leave_room_for_others() {
        let shares = ObjectShares::default();
        let greedy: usize = (0..100)
            .map(|pod| taken(&shares, &format!("greedy {pod}"), "greedy", 1_000))
            .sum();
        // Half of all, and what is assured to each pod.
        assert!((640..=640 + 400).contains(&greedy), "{greedy}");
        let before = greedy;
        assert!(taken(&shares, "modest", "modest", 100) == 100, "beside {before}");
        assert_eq!(taken(&shares, "late", "greedy", 10), OBJECTS_OF_POD_ASSURED);
        let refused = shares.take("late", "greedy", true).unwrap_err();
        assert!(matches!(refused, VolumeError::Source(_)), "it is tried again");
        shares.ended("greedy");
        taken(&shares, "more", "greedy", OBJECTS_OF_POD_ASSURED);
        let again = shares.take("late", "greedy", true).unwrap_err();
        assert_eq!(
            again.to_string(),
            refused.to_string(),
            "the event's count is raised"
        );
        shares.take("late", "greedy", false).unwrap();
    }

    #[test]
    fn objects_that_nobody_follows_are_given_back() {
        let shares = ObjectShares::default();
        for _ in 0..10 {
            assert_eq!(taken(&shares, "a", "n", 1_000), 256);
            (0..256).for_each(|_| shares.ended("n"));
            shares.forget_pod("a");
        }
        let counts = shares.0.lock();
        assert!(counts.of_pods.is_empty() && counts.of_namespaces.is_empty() && counts.watches == 0);
    }
}
