//! Devices that programs of the machine offer to pods by the device-plugin API: upstream's `devicemanager`.
//!
//! A plugin registers at the agent's socket ([`registration`]) and lists its devices for as long as it lives ([`plugin`]);
//! [`inventory`] knows them, [`manager`] keeps all of it, and the Node object shows how many there are. A new pod is given devices before anything of it
//! starts ([`allocating`], [`claims`]): which ones is [`choice`]'s to say, their pods [`allocations`]' to know. The plugin's answers
//! for them go into the container's configuration ([`container_options`]). [`checkpoint`] is what the next agent goes on
//! with, which [`saving`](crate::saving) writes; [`admission`] is a pod's turn. Calls are carried by [`plugins::sockets`](crate::plugins::sockets).
//!
//! Never: a device given to two pods, a call under a lock that other plugins' pods need, an answer without a bound.

pub(crate) mod admission;
mod allocating;
mod allocations;
mod checkpoint;
mod choice;
mod claims;
pub(crate) mod container_options;
mod hints;
mod inventory;
pub(crate) mod manager;
mod metrics;
mod plugin;
mod registration;
mod state;

#[cfg(test)]
pub(crate) mod manager_tests;
#[cfg(test)]
mod tests;

pub(crate) use inventory::NodeDevices;
pub(crate) use metrics::begin as begin_metrics;
pub(crate) use registration::serve;

/// Resources that plugins may register.
const PLUGINS_MAX: usize = 128;
/// Devices of one plugin.
const DEVICES_MAX: usize = 16_384;
/// Bytes of a device's id; upstream's text says 63, and its code nothing.
const ID_BYTES_MAX: usize = 1_024;
/// NUMA nodes of a device.
const NODES_MAX: usize = 64;
/// Bytes of what a plugin answers for one container; it is kept for as long as the pod is.
const RESPONSE_BYTES_MAX: usize = 256 << 10;
/// Weight of the lists of all plugins: bytes of ids and of what the node keeps beside them.
const LISTS_WEIGHT_MAX: usize = 4 << 20;
/// Weight of all that pods have, on the disk. Together with the lists it has room in the checkpoint.
const ALLOCATIONS_WEIGHT_MAX: usize = 32 << 20;
