//! Constraints of a claim: devices have one value of an attribute, or a different one each.

use super::requests::Prepared;
use super::{Refusal, Wanted};
use crate::devices::objects::{ClaimConstraint, Device};
use machinery_cel::DeviceAttribute;

/// Names of requests that are compared in one step.
const NAMES_A_STEP: usize = 8;

/// A constraint with the devices that are chosen so far. It is monotonic: where it does not hold, more devices do not help.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    requests: &'a [Box<str>],
    attribute: &'a str,
    is_distinct: bool,
    values: Vec<&'a DeviceAttribute>,
}

impl<'a> Constraint<'a> {
    pub(super) fn of_claim(claim: &Wanted<'a>) -> Result<Vec<Self>, Refusal> {
        let all = claim.spec.devices.constraints.iter().enumerate();
        all.map(|(at, own)| {
            Self::of(own).ok_or_else(|| {
                let key = claim.key;
                Refusal::Broken(format!(
                    "claim {key}, constraint #{at}: empty constraint (unsupported constraint type?)"
                ))
            })
        })
        .collect()
    }

    fn of(own: &'a ClaimConstraint) -> Option<Self> {
        let (attribute, is_distinct) = match (&own.match_attribute, &own.distinct_attribute) {
            (Some(name), _) => (name, false),
            (None, Some(name)) => (name, true),
            (None, None) => return None,
        };
        Some(Self {
            requests: &own.requests,
            attribute,
            is_distinct,
            values: Vec::new(),
        })
    }

    /// Steps that a device takes to be added and taken back.
    pub(super) fn steps(&self) -> usize {
        2 + self.requests.len() / NAMES_A_STEP
    }

    /// Reports whether the constraint is about the request: about all where it names none.
    fn concerns(&self, request: &Prepared<'_>) -> bool {
        self.requests.is_empty() || request.is_among(self.requests)
    }

    /// Adds a device, unless the constraint would not hold any more.
    pub(super) fn add(&mut self, request: &Prepared<'_>, device: &'a Device) -> bool {
        if !self.concerns(request) {
            return true;
        }
        let value = device.attribute(self.attribute);
        let value = value.filter(|own| **own != DeviceAttribute::Unsupported);
        let Some(value) = value else {
            return false;
        };
        let holds = match self.is_distinct {
            true => !self.values.contains(&value),
            false => self.values.first().is_none_or(|own| *own == value),
        };
        if holds {
            self.values.push(value);
        }
        holds
    }

    /// Takes back the device that was added last.
    pub(super) fn remove(&mut self, request: &Prepared<'_>) {
        if self.concerns(request) {
            self.values.pop();
        }
    }
}
