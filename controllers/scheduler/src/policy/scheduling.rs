//! The scheduler's part: the policy of the default profile, and the usage that it requests.

use super::Policy;
use crate::pod::PodInfo;
use crate::scheduler::{SCHEDULER_NAME, Scheduler};
use crate::usage::{Sample, Used};
use std::time::Duration;

impl Scheduler {
    /// The default profile places pods by this policy from now on. Returns whether there is that profile.
    pub fn set_policy(&mut self, policy: Policy) -> bool {
        if !policy.needs_usage() {
            self.nodes.usage.forget();
        }
        let profile = self.profiles.get_mut(SCHEDULER_NAME);
        let has_profile = profile.is_some();
        if let Some(profile) = profile {
            profile.algorithm.set_policy(policy);
        }
        has_profile
    }

    pub fn has_default_profile(&self) -> bool {
        self.profiles.get(SCHEDULER_NAME).is_some()
    }

    /// Reports whether the default profile is there and its policy needs the usage of nodes.
    pub fn needs_usage(&self) -> bool {
        let profile = self.profiles.get(SCHEDULER_NAME);
        profile.is_some_and(|own| own.algorithm.policy().needs_usage())
    }

    /// Nodes use what these samples say.
    pub fn usage_changed(&mut self, samples: Vec<Sample>) {
        if self.needs_usage() {
            self.nodes.usage.set(samples);
        }
    }

    /// Nodes whose usage is known.
    pub fn nodes_with_usage(&self, now: Duration) -> usize {
        self.nodes.usage.known(now)
    }
}

/// Probable usage of a pod.
pub(crate) fn assumed_usage(pod: &PodInfo) -> Used {
    Used {
        milli_cpu: pod.shape.scored_milli_cpu,
        memory: pod.shape.scored_memory,
    }
}
