//! The scheduler's part: pods on their nodes that wait for conditions of their devices (upstream's `PreBind`).
//!
//! Upstream looks every five seconds; here a change of a claim wakes the pods that wait for it.

use super::Devices;
use super::conditions::Readiness;
use crate::decision::Decision;
use crate::pod::PodInfo;
use crate::scheduler::Scheduler;
use crate::volumes::Reservation;
use crate::volumes::waiting::WaitingPod;
use machinery_meta::ObjectKey;
use std::time::Duration;

/// Beginning of upstream's message where a pod cannot have its devices.
pub(crate) const PRE_BIND: &str = "running PreBind plugin \"DynamicResources\"";

/// A condition is true that must not be.
const BINDING_FAILURE: &str = "failure";
const BINDING_TIMEOUT: &str = "timeout";
/// A claim is gone.
const BINDING_ERROR: &str = "error";

/// The devices of a pod will not be ready.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unready {
    /// Label of upstream's metrics.
    status: &'static str,
    why: String,
}

impl Devices {
    /// Reports whether the conditions of all devices of the claims are met; an error where they will not be.
    pub(crate) fn are_ready(&self, claims: &[ObjectKey]) -> Result<bool, Unready> {
        for key in claims {
            let claim = self.claim(key).ok_or_else(|| Unready {
                status: BINDING_ERROR,
                why: format!("could not find v1.ResourceClaim \"{key}\""),
            })?;
            match claim.status.get().readiness(&key.name) {
                Readiness::Ready => {}
                Readiness::Pending => return Ok(false),
                Readiness::Failed(why) => {
                    let status = BINDING_FAILURE;
                    return Err(Unready { status, why });
                }
            }
        }
        Ok(true)
    }
}

impl Scheduler {
    /// The time until which the pod waits for conditions, where it has any to wait for: those of a claim that was allocated
    /// before end the sooner.
    pub(crate) fn conditions_end(
        &self,
        pod: &PodInfo,
        reservation: &Reservation,
        now: Duration,
    ) -> Option<Duration> {
        let devices = &self.nodes.devices;
        let timeout = self.binding_timeout(pod);
        let left = reservation.conditions.iter().map(|key| {
            let end = devices.claim(key)?.status.get().conditions_end(timeout)?;
            let left = end.duration_since(devices.wall_time);
            Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
        });
        let least = left.map(|left| left.unwrap_or(timeout).min(timeout)).min();
        least.map(|least| now + least)
    }

    /// Wakes pods that wait for a claim which changed.
    pub(crate) fn conditions_changed(&mut self, claim: &ObjectKey) {
        let waiting = self.binding.waiting.of_claim(claim);
        self.look_again(waiting);
    }

    /// The pod has waited long enough.
    pub(crate) fn conditions_are_late(&mut self, key: &ObjectKey) {
        let Some(own) = self.binding.waiting.get(key) else {
            return;
        };
        let timeout = self.binding_timeout(&own.pod);
        let devices = &self.nodes.devices;
        let is_late = |key: &&ObjectKey| {
            let claim = devices.claim(key);
            claim.is_some_and(|own| own.status.get().is_unfit(timeout, devices.wall_time))
        };
        let late = own.reservation.conditions.iter().find(is_late);
        let why = match late {
            Some(claim) => format!("device binding timeout: claim={}", claim.name),
            None => "device binding timeout: context deadline exceeded".to_owned(),
        };
        let status = BINDING_TIMEOUT;
        self.conditions_failed(key, Unready { status, why });
    }

    pub(crate) fn conditions_failed(&mut self, key: &ObjectKey, unready: Unready) {
        let Some(own) = self.binding.waiting.remove(key) else {
            return;
        };
        self.conditions_waited(&own, unready.status);
        let message = format!("{PRE_BIND}: {}", unready.why);
        let (pod, held) = (own.pod, own.reservation.held);
        self.measuring.not_pre_bound(&pod);
        self.binding
            .decided
            .push_back(Decision::Fail { pod, message, held });
    }

    /// Measures the end of a wait for conditions: its time by each device of the claims, and the devices with conditions.
    pub(crate) fn conditions_waited(&self, own: &WaitingPod, status: &'static str) {
        for key in &own.reservation.conditions {
            let Some(claim) = self.nodes.devices.claim(key) else {
                continue;
            };
            for result in claim.status.get().results() {
                let waits = !result.binding_conditions.is_empty();
                let profile = &own.pod.pod.spec.scheduler_name;
                self.measuring
                    .conditions_waited((profile, &result.driver, status), own.since, waits);
            }
        }
    }
}
