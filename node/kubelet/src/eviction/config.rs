//! Configuration of eviction beside the hard thresholds, which also say what pods may request
//! ([`crate::node::reserve`]). Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::signal::Signal;
use super::thresholds::{EvictionThreshold, Thresholds};
use crate::node::reserve::Reserve;

/// Grace period of a pod whose eviction cannot wait, in seconds.
pub(crate) const IMMEDIATE_GRACE_PERIOD_SECONDS: i64 = 1;
/// Reason of evictions and of rejections under pressure.
pub(crate) const REASON: &str = "Evicted";

/// Times of soft thresholds by the name of their signal.
pub type GracePeriods = BTreeMap<String, Duration>;

/// Settings with upstream's names.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionConfig {
    /// Thresholds that have to be met for some time.
    pub soft: Thresholds,
    /// Times for which soft thresholds have to be met.
    pub soft_grace_period: GracePeriods,
    /// Amounts that are reclaimed at least.
    pub minimum_reclaim: Thresholds,
    /// Time for which a condition stays after it was observed last.
    pub pressure_transition_period: Duration,
    /// Longest grace period of a pod that is evicted for a soft threshold, in seconds; the pod's own where it is negative.
    pub max_pod_grace_period_seconds: i64,
}

impl Default for EvictionConfig {
    fn default() -> Self {
        Self {
            soft: Thresholds::new(),
            soft_grace_period: GracePeriods::new(),
            minimum_reclaim: Thresholds::new(),
            pressure_transition_period: Duration::from_secs(300),
            max_pod_grace_period_seconds: 0,
        }
    }
}

impl EvictionConfig {
    /// Everything wrong with it, in upstream's words.
    pub fn problems(&self) -> Vec<String> {
        let without = self
            .soft
            .keys()
            .filter(|signal| !self.soft_grace_period.contains_key(*signal));
        without
            .map(|signal| {
                format!(
                    "--eviction-soft: grace period must be specified for the soft eviction threshold {signal}"
                )
            })
            .collect()
    }

    /// All thresholds. Where the pods' group is limited, what pods have left below that limit has the machine's hard
    /// threshold, too.
    pub fn thresholds(&self, reserve: &Reserve) -> Vec<EvictionThreshold> {
        let of = |levels: &Thresholds, grace: &dyn Fn(&str) -> Duration| -> Vec<EvictionThreshold> {
            let known = levels
                .iter()
                .filter_map(|(name, level)| Some((Signal::named(name)?, name, *level)));
            known
                .map(|(signal, name, level)| EvictionThreshold {
                    signal,
                    level,
                    grace_period: grace(name),
                    minimum_reclaim: self.minimum_reclaim.get(name).copied(),
                })
                .collect()
        };
        let mut all = of(&reserve.eviction_hard, &|_| Duration::ZERO);
        all.extend(of(&self.soft, &|name| {
            self.soft_grace_period.get(name).copied().unwrap_or_default()
        }));
        let of_memory = |own: &&EvictionThreshold| own.signal == Signal::MemoryAvailable && own.is_hard();
        let memory = all.iter().find(of_memory).copied();
        if let Some(memory) = memory.filter(|_| reserve.enforces_pods()) {
            all.push(EvictionThreshold {
                signal: Signal::AllocatableMemoryAvailable,
                ..memory
            });
        }
        let (ignored, mut used): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|own| own.signal.is_of_container_fs());
        for own in ignored {
            tracing::warn!(
                signal = own.signal.name(),
                "eviction threshold ignored: containers have the file system of images"
            );
        }
        // Memory is reclaimed before all else.
        used.sort_by_key(|own| own.signal.resource());
        used
    }

    /// Grace period of a pod that is evicted for this threshold, in seconds.
    pub fn grace_period_seconds(&self, threshold: &EvictionThreshold, of_the_pod: i64) -> i64 {
        match threshold.is_hard() {
            true => IMMEDIATE_GRACE_PERIOD_SECONDS,
            false if self.max_pod_grace_period_seconds < 0 => of_the_pod,
            false => self.max_pod_grace_period_seconds.min(of_the_pod),
        }
    }
}
