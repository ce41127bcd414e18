//! Processors and memory that containers have for themselves, and their alignment with devices: upstream's `cpumanager`,
//! `memorymanager` and `topologymanager`.
//!
//! A new pod is given devices, processors and memory before anything of it starts ([`admission`], [`giving`]): [`cpu`] decides
//! about processors, [`memory`] about memory, and [`topology`] about the NUMA nodes of all. [`manager`] keeps who has what.
//! A container is created with what it has ([`reading`]), and [`reconcile`] changes the running ones when the shared
//! processors become more or fewer. [`discovery`] reads the machine, [`state_file`] the file that an agent before this one left, and [`config`] has the settings.
//!
//! Never: a processor of two containers that are to have it alone, a state of an agent before this one that is guessed at.

mod admission;
pub(crate) mod config;
pub(crate) mod cpu;
mod discovery;
mod giving;
mod go_checksum;
pub(crate) mod hints;
pub(crate) mod manager;
pub(crate) mod memory;
mod metrics;
mod reading;
pub(crate) mod reconcile;
pub(crate) mod rejection;
mod state_file;
pub(crate) mod topology;

#[cfg(test)]
mod manager_tests;

pub use config::{
    CpuManagerPolicy, MemoryManagerPolicy, ResourceManagersConfig, TopologyManagerPolicy,
    TopologyManagerScope,
};
pub use memory::reservation::MemoryReservation;
pub(crate) use metrics::begin as begin_metrics;
