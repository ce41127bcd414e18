//! Removal of leases and links whose sandbox no longer exists.
//!
//! A runtime deletes what it adds, unless it or the agent is killed in between. The agent lists the runtime's sandboxes now and then
//! ([`Plugin::collect`]); a lease whose container is not listed goes, with its link, after a time in which a runtime that still works
//! on a sandbox would have listed it. One that an earlier agent left without a link goes at once: its addition has failed.

use super::call::Owner;
use super::plugin::{Plugin, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longer than the kubelet waits for a sandbox (four minutes).
const UNLISTED_FOR: Duration = Duration::from_secs(300);

/// Containers that have a lease and are not listed.
#[derive(Debug, Default)]
pub(super) struct Unlisted {
    since: BTreeMap<Owner, Duration>,
    /// Owners for which this agent has begun to make a link.
    own: BTreeSet<Owner>,
}

impl Unlisted {
    /// An addition begins.
    pub(super) fn begun(&mut self, owner: &Owner) {
        self.own.insert(owner.clone());
        self.since.remove(owner);
    }

    /// A lease has been released. The caller reports it because a list of leases that was read before an addition does not have the new one.
    pub(super) fn ended(&mut self, owner: &Owner) {
        self.own.remove(owner);
    }

    /// Returns the owners to remove, of those that have leases, each with whether a link leads to its address. Pure.
    fn due(&mut self, leased: &BTreeMap<&Owner, bool>, live: &BTreeSet<String>, now: Duration) -> Vec<Owner> {
        let unlisted = leased
            .iter()
            .filter(|(owner, _)| !live.contains(&owner.container));
        let unlisted: BTreeMap<Owner, bool> = unlisted
            .map(|(owner, linked)| ((*owner).clone(), *linked))
            .collect();
        // A container that is listed again starts its five minutes again the next time it is missing.
        self.since.retain(|owner, _| unlisted.contains_key(owner));
        let mut due = Vec::new();
        for (owner, is_linked) in unlisted {
            let since = *self.since.entry(owner.clone()).or_insert(now);
            // An own addition is between lease and link for a moment; only a lease of an earlier agent without
            // a link is a remnant.
            let is_left = !is_linked && !self.own.contains(&owner);
            if is_left || now.saturating_sub(since) >= UNLISTED_FOR {
                due.push(owner);
            }
        }
        due
    }
}

impl Plugin {
    /// Removes leases, and their links, of containers that are no sandboxes: `live` are the ids of all that the runtime has,
    /// `now` is the time since the agent began. Blocks. Returns the number removed.
    pub fn collect(&self, live: &BTreeSet<String>, now: Duration) -> usize {
        let (leased, reached) = match (self.leased(), self.reached()) {
            (Ok(leased), Ok(reached)) => (leased, reached),
            (Err(error), _) => {
                tracing::warn!(%error, "leases of pods' addresses were not compared with sandboxes");
                return 0;
            }
            (_, Err(error)) => {
                tracing::warn!(%error, "links of pods were not compared with sandboxes");
                return 0;
            }
        };
        let owners = leased
            .iter()
            .map(|(address, owner)| (owner, reached.contains(address)));
        let due = lock(&self.unlisted).due(&owners.collect(), live, now);
        let mut removed = 0;
        for owner in due {
            match self.delete(&owner, None) {
                Ok(()) => {
                    tracing::info!(
                        container = owner.container,
                        "address of a pod that is gone was released"
                    );
                    removed += 1;
                }
                Err(error) => tracing::warn!(%error, container = owner.container, "address not released"),
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner {
            container: name.to_owned(),
            interface: "eth0".to_owned(),
        }
    }

    /// Names of those due, of `name:linked` pairs.
    fn due(unlisted: &mut Unlisted, leased: &[(&str, bool)], live: &[&str], seconds: u64) -> Vec<String> {
        let owners: Vec<Owner> = leased.iter().map(|(name, _)| owner(name)).collect();
        let leased = owners
            .iter()
            .zip(leased.iter().map(|(_, linked)| *linked))
            .collect();
        let live = live.iter().map(|name| (*name).to_owned()).collect();
        let due = unlisted.due(&leased, &live, Duration::from_secs(seconds));
        due.into_iter().map(|owner| owner.container).collect()
    }

    #[test]
    fn lease_without_a_sandbox_is_due_once_no_runtime_works_on_it() {
        let mut unlisted = Unlisted::default();
        unlisted.begun(&owner("new"));
        let all = [("lives", true), ("left", false), ("linked", true), ("new", false)];
        assert_eq!(due(&mut unlisted, &all, &["lives"], 10), ["left"]);
        let all = [("lives", true), ("linked", true), ("new", false)];
        assert_eq!(due(&mut unlisted, &all, &["lives"], 309), [""; 0]);
        assert_eq!(due(&mut unlisted, &all, &["lives"], 310), ["linked", "new"]);
    }

    #[test]
    fn lease_of_a_sandbox_that_is_listed_again_has_its_time_again() {
        let mut unlisted = Unlisted::default();
        let all = [("a", true)];
        assert_eq!(due(&mut unlisted, &all, &[], 0), [""; 0]);
        assert_eq!(due(&mut unlisted, &all, &["a"], 200), [""; 0]);
        assert_eq!(due(&mut unlisted, &all, &[], 400), [""; 0]);
        assert_eq!(due(&mut unlisted, &all, &[], 699), [""; 0]);
        assert_eq!(due(&mut unlisted, &all, &[], 700), ["a"]);
    }
}
