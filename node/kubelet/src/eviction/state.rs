//! Decision on conditions and thresholds from one observation to the next. Pure: the time is passed in.

use std::time::Duration;

use super::observations::Observations;
use super::signal::{PressureKind, Starved};
use super::thresholds::EvictionThreshold;
use crate::node::pressure::Pressure;

/// Everything that is remembered between two observations.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EvictionState {
    /// Thresholds that were met for long enough.
    met: Vec<EvictionThreshold>,
    /// Time at which each threshold that is met was met first.
    first_met: Vec<(EvictionThreshold, Duration)>,
    /// Time at which each condition was observed last.
    last_observed: Vec<(PressureKind, Duration)>,
}

/// Outcome of an observation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Verdict {
    /// Conditions that the node reports.
    pub(crate) pressure: Pressure,
    /// Thresholds to reclaim for, the most urgent first.
    pub(crate) thresholds: Vec<EvictionThreshold>,
}

/// Thresholds that are met, whatever their time; `with_reclaim` until as much more is free as has to be reclaimed.
pub(crate) fn met(
    thresholds: &[EvictionThreshold],
    observations: &Observations,
    with_reclaim: bool,
) -> Vec<EvictionThreshold> {
    let is_met = |threshold: &&EvictionThreshold| {
        let Some(observed) = observations.get(&threshold.signal) else {
            return false;
        };
        let mut level = threshold.level.of(observed.capacity);
        if let Some(reclaim) = threshold.minimum_reclaim.filter(|_| with_reclaim) {
            level = level.saturating_add(reclaim.of(observed.capacity));
        }
        observed.available < level
    };
    thresholds.iter().filter(is_met).copied().collect()
}

impl EvictionState {
    /// Takes an observation in. The order of `thresholds` is that of their urgency.
    pub(crate) fn observe(
        &mut self,
        thresholds: &[EvictionThreshold],
        observations: &Observations,
        transition_period: Duration,
        now: Duration,
    ) -> Verdict {
        let mut now_met = met(thresholds, observations, false);
        for unresolved in met(&self.met, observations, true) {
            if !now_met.iter().any(|own| own.is_same(&unresolved)) {
                now_met.push(unresolved);
            }
        }
        self.first_met = now_met
            .iter()
            .map(|own| {
                let before = self.first_met.iter().find(|(known, _)| known.is_same(own));
                (*own, before.map_or(now, |(_, since)| *since))
            })
            .collect();
        let pressure = self.conditions(&now_met, transition_period, now);
        let lasting = self
            .first_met
            .iter()
            .filter(|(own, since)| now.saturating_sub(*since) >= own.grace_period);
        self.met = lasting.map(|(own, _)| *own).collect();
        let mut thresholds = self.met.clone();
        thresholds.sort_by_key(|own| own.signal.resource() != Starved::Memory);
        Verdict { pressure, thresholds }
    }

    /// Conditions that were observed now or within the transition period.
    fn conditions(
        &mut self,
        met: &[EvictionThreshold],
        transition_period: Duration,
        now: Duration,
    ) -> Pressure {
        for kind in met.iter().map(|own| own.signal.condition()) {
            self.last_observed.retain(|(known, _)| *known != kind);
            self.last_observed.push((kind, now));
        }
        let lasting = |kind: PressureKind| {
            let mut observed = self.last_observed.iter();
            observed.any(|(known, at)| *known == kind && now.saturating_sub(*at) < transition_period)
        };
        // With no time of transition, a condition ends with what it was observed for.
        let observed = |kind: PressureKind| met.iter().any(|own| own.signal.condition() == kind);
        let has = |kind: PressureKind| lasting(kind) || observed(kind);
        Pressure {
            memory: has(PressureKind::Memory),
            disk: has(PressureKind::Disk),
            pid: has(PressureKind::Pid),
        }
    }
}
