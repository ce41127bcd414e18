//! Conditions of devices that a pod waits for before it is bound (KEP-5007, upstream's `isPodReadyForBinding`).
//!
//! A device says in its slice which conditions must be true, and of which none may be. The allocation repeats them, and a
//! controller reports them in the claim's `status.devices`.

use super::objects::{AllocatedDevice, ClaimStatus, DeviceCondition, DeviceStatus};
use crate::rejection::bounded_reason;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Label of metrics of a wait whose conditions are met.
pub(crate) const BINDING_SUCCESS: &str = "success";

/// Result of a look at the conditions of a claim's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    Pending,
    /// A condition is true that must not be; the reason and the message of it.
    Failed(String),
}

impl ClaimStatus {
    /// Reports whether a pod with the claim waits for conditions.
    pub(crate) fn has_conditions(&self) -> bool {
        self.results().any(|own| !own.binding_conditions.is_empty())
    }

    pub(crate) fn results(&self) -> impl Iterator<Item = &AllocatedDevice> {
        self.allocation.iter().flat_map(|own| &own.devices.results)
    }

    /// Looks at the conditions of all devices of the claim, whose name is `claim`.
    pub(crate) fn readiness(&self, claim: &str) -> Readiness {
        if self.allocation.is_none() {
            return Readiness::Pending;
        }
        for result in self.results().filter(|own| !own.binding_conditions.is_empty()) {
            let Some(device) = self.devices.iter().find(|own| own.is_of(result)) else {
                return Readiness::Pending;
            };
            let failed = |name: &str| device.condition(name).filter(|own| own.is_true());
            let mut failures = result.binding_failure_conditions.iter();
            if let Some(own) = failures.find_map(|name| failed(name)) {
                let (reason, message) = (&own.reason, &own.message);
                return Readiness::Failed(bounded_reason(format!(
                    "device binding failed: claim={claim}, reason={reason}, message={message:?}"
                )));
            }
            let is_met = |name: &str| device.condition(name).is_some_and(DeviceCondition::is_true);
            if !result.binding_conditions.iter().all(|name| is_met(name)) {
                return Readiness::Pending;
            }
        }
        Readiness::Ready
    }

    /// The end of waiting for conditions, where the claim has any and says when it was allocated.
    pub(crate) fn conditions_end(&self, timeout: Duration) -> Option<Timestamp> {
        let allocated = self.allocation.as_ref()?.allocation_timestamp?;
        let timeout = SignedDuration::try_from(timeout).ok()?;
        let end = allocated.checked_add(timeout).ok()?;
        self.has_conditions().then_some(end)
    }

    /// Reports whether the devices cannot be used: a condition failed, or they were waited for long enough.
    pub(crate) fn is_unfit(&self, timeout: Duration, now: Timestamp) -> bool {
        match self.has_conditions() {
            false => false,
            true => match self.readiness("") {
                Readiness::Ready => false,
                Readiness::Pending => self.conditions_end(timeout).is_some_and(|end| end < now),
                Readiness::Failed(_) => true,
            },
        }
    }
}

impl DeviceStatus {
    fn is_of(&self, own: &AllocatedDevice) -> bool {
        self.device == own.device && self.driver == own.driver && self.pool == own.pool
    }

    fn condition(&self, name: &str) -> Option<&DeviceCondition> {
        self.conditions.iter().find(|own| *own.type_ == *name)
    }
}

impl DeviceCondition {
    fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}
