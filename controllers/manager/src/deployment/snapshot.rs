//! Input of a plan: a Deployment and its sets at one time.

use super::revisions;
use super::sets::{DeploymentRef, SetRef};

/// A Deployment and its sets.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) deployment: DeploymentRef,
    /// Sets it controls.
    pub(super) sets: Vec<SetRef>,
    /// True if any pod of an old set still exists and has not finished.
    pub(super) old_pods_running: bool,
}

impl Snapshot {
    pub(super) fn new_set(&self) -> Option<SetRef> {
        revisions::find_new(&self.deployment, &self.sets)
    }

    pub(super) fn old_sets(&self) -> Vec<SetRef> {
        let new = self.new_set();
        self.sets
            .iter()
            .filter(|set| new.as_ref().is_none_or(|new| new.uid() != set.uid()))
            .cloned()
            .collect()
    }

    pub(super) fn max_old_revision(&self) -> i64 {
        self.old_sets()
            .iter()
            .map(|set| revisions::revision(set))
            .max()
            .unwrap_or(0)
    }
}
