//! Processors that containers have for themselves: upstream's `cpumanager`.
//!
//! [`topology`] says where the processors of a machine are, [`assignment`] and [`distributed`] choose some of them, and
//! [`policy`] decides which containers get any; [`checkpoint`] is what the next agent goes on with.

pub(crate) mod assignment;
pub(crate) mod checkpoint;
pub(crate) mod distributed;
pub(crate) mod metrics;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod set;
pub(crate) mod topology;

#[cfg(test)]
mod tests;
