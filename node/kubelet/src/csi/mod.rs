//! Volumes of drivers that speak the Container Storage Interface: upstream's `pkg/volume/csi`.
//!
//! A driver registers ([`registration`], by way of [`plugins`](crate::plugins)), is known from then on ([`drivers`]) and shown in the
//! CSINode and Node objects ([`node_objects`]). A pod's volume ([`publishing`]) is waited for until it is attached ([`attachment`]),
//! staged once for the node ([`staging`]) and shown to the pod; [`requests`] makes the driver's requests. A begun step is
//! written down beside it before ([`records`], at upstream's [`places`]), so that a later agent takes it away; [`state`] knows
//! which pods have which volumes, [`usage`] how much they hold, and [`growth`] makes them larger. [`manager`] keeps all of it.
//!
//! Never: a call without a deadline, a call under a lock that another volume needs, a secret in a log or on a disk.

mod attachment;
mod drivers;
mod growth;
pub(crate) mod manager;
mod node_objects;
mod places;
mod publishing;
mod records;
mod registration;
mod requests;
mod staging;
mod state;
mod turns;
mod usage;

pub(crate) use growth::follow_claims;
pub(crate) use manager::{Csi, recorded_in_use};
pub(crate) use staging::take_away_unused;
pub(crate) use usage::follow_usage;
#[cfg(test)]
pub(crate) use usage::write_sample;

use std::time::Duration;

/// Time of a driver's call; upstream's `csiTimeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
