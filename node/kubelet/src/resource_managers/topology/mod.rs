//! Alignment of what a container has with the machine's NUMA nodes: upstream's `topologymanager`.
//!
//! Devices, processors and memory each say of which nodes they could be taken ([`hints`](super::hints)); [`merging`] finds the
//! nodes that suit all of them best, and [`policy`] says whether that is good enough for the pod to run ([`options`] of it). Pure.

pub(crate) mod merging;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod policy;

#[cfg(test)]
mod tests;
