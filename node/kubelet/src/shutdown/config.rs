//! Periods in which pods end when the machine goes down.

use std::time::Duration;

/// Priority of pods that name none.
const DEFAULT_PRIORITY: i32 = 0;
/// Priority of `system-cluster-critical`.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// A period of the pods from a priority on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownPeriod {
    /// Lowest priority of its pods.
    pub priority: i32,
    /// Seconds that they have.
    pub seconds: u64,
}

/// All of them; none where the machine waits for no pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// Upstream's `shutdownGracePeriod`.
    pub grace_period: Duration,
    /// Part of it that critical pods have alone.
    pub critical_pods: Duration,
    /// Upstream's `shutdownGracePeriodByPodPriority`; where it is given, the others are not.
    pub by_priority: Vec<ShutdownPeriod>,
    /// Address of the system bus; the usual one where there is none.
    pub bus_address: Option<String>,
}

impl ShutdownConfig {
    /// Periods from the lowest priority to the highest.
    pub fn periods(&self) -> Vec<ShutdownPeriod> {
        let mut periods = self.by_priority.clone();
        if periods.is_empty() && !self.grace_period.is_zero() {
            let others = self.grace_period.saturating_sub(self.critical_pods);
            let period = |priority, time: Duration| ShutdownPeriod {
                priority,
                seconds: time.as_secs(),
            };
            periods = vec![
                period(DEFAULT_PRIORITY, others),
                period(CRITICAL_PRIORITY, self.critical_pods),
            ];
        }
        periods.sort_by_key(|period| period.priority);
        periods
    }

    /// Everything wrong with it, in upstream's words.
    pub fn problems(&self) -> Vec<String> {
        let (all, critical) = (self.grace_period, self.critical_pods);
        let mut problems = Vec::new();
        if critical > all {
            problems.push("shutdownGracePeriodCriticalPods must be <= shutdownGracePeriod".to_owned());
        }
        for (name, period) in [
            ("shutdownGracePeriod", all),
            ("shutdownGracePeriodCriticalPods", critical),
        ] {
            if !period.is_zero() && period < Duration::from_secs(1) {
                problems.push(format!("{name} must be either zero or otherwise >= 1 sec"));
            }
        }
        let has_periods = !all.is_zero() || !critical.is_zero();
        if !self.by_priority.is_empty() && has_periods {
            problems.push(
                "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"
                    .to_owned(),
            );
        }
        problems
    }
}
