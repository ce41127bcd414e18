//! Memory of NUMA nodes that containers have for themselves: upstream's `memorymanager`.
//!
//! [`table`] has what each NUMA node has and which containers have some of it, [`policy`] decides which nodes a container gets memory of, and
//! [`checkpoint`] is what the next agent goes on with.

pub(crate) mod checkpoint;
pub(crate) mod metrics;
pub(crate) mod policy;
pub(crate) mod reservation;
pub(crate) mod table;

#[cfg(test)]
mod tests;
