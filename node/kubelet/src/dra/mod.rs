//! Devices of ResourceClaims, which drivers prepare on the node: upstream's `pkg/kubelet/cm/dra`.
//!
//! A driver registers ([`registration`], by way of [`plugins`](crate::plugins)) and is known from then on ([`drivers`]); the slices of one
//! that is not there are removed ([`wiping`]). Before a pod's sandbox is made its claims are read and checked ([`pod_claims`]), written
//! down ([`checkpoint`]) and prepared by their drivers ([`preparing`]); [`claims`] knows which pods use which, and which devices
//! containers get. After the last pod of a claim has ended that is taken back ([`unpreparing`]), and for pods that have gone while no
//! agent ran. [`manager`] keeps all of it, [`metrics`] has its figures.
//!
//! Never: a call without a deadline, a call under a lock that another pod needs, a driver called for a claim of which nothing is
//! written down.

mod checkpoint;
mod claims;
mod drivers;
pub(crate) mod manager;
mod metrics;
mod pod_claims;
mod preparing;
mod registration;
mod unpreparing;
mod wiping;

#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod tests;

pub(crate) use manager::Dra;
pub(crate) use metrics::begin as begin_metrics;
pub(crate) use unpreparing::run;

use std::time::Duration;

/// Time of a driver's call; upstream's `defaultClientCallTimeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);
