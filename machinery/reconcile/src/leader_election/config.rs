//! Settings of an election; names and defaults are those of upstream's flags.

use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Time without a change of the lease after which candidates try to acquire it (`--leader-elect-lease-duration`).
    pub lease_duration: Duration,
    /// Time for which the leader tries to renew before it stops (`--leader-elect-renew-deadline`).
    pub renew_deadline: Duration,
    /// Time between attempts (`--leader-elect-retry-period`).
    pub retry_period: Duration,
    /// The lease's name and namespace.
    pub resource_name: String,
    /// See `resource_name`.
    pub resource_namespace: String,
    /// Identity of this candidate, unique.
    pub identity: String,
}

/// The most that chance adds to the retry period of a candidate, as a factor.
pub(super) const JITTER: f64 = 1.2;

impl ElectionConfig {
    /// Upstream's defaults for a lease.
    pub fn new(resource_name: &str, identity: &str) -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: resource_name.to_owned(),
            resource_namespace: "kube-system".to_owned(),
            identity: identity.to_owned(),
        }
    }

    /// Everything that is wrong with it, in upstream's words.
    pub fn problems(&self) -> Vec<&'static str> {
        let mut problems = Vec::new();
        if self.lease_duration < Duration::from_secs(1) {
            // Leases count whole seconds.
            problems.push("leaseDuration must be at least one second");
        }
        if self.lease_duration <= self.renew_deadline {
            problems.push("leaseDuration must be greater than renewDeadline");
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            problems.push("renewDeadline must be greater than retryPeriod*JitterFactor");
        }
        if self.retry_period.is_zero() {
            problems.push("retryPeriod must be greater than zero");
        }
        if self.resource_name.is_empty() {
            problems.push("resourceName is required");
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn election_settings_that_could_have_two_leaders_are_refused() {
        let good = ElectionConfig::new("a", "me");
        assert_eq!(good.problems(), [""; 0]);
        let of = |lease, renew, retry| ElectionConfig {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(renew),
            retry_period: Duration::from_millis(retry),
            ..good.clone()
        };
        for (lease, renew, retry, count) in [
            (15_000, 15_000, 2_000, 1),
            (15_000, 10_000, 9_000, 1),
            (15_000, 10_000, 0, 1),
            (500, 400, 100, 1),
            (0, 0, 0, 4),
        ] {
            assert_eq!(
                of(lease, renew, retry).problems().len(),
                count,
                "{lease} {renew} {retry}"
            );
        }
    }
}
