//! Container logs: the formats that runtimes write, reading them back, and keeping them small.

pub(crate) mod following;
mod generations;
pub(crate) mod line;
#[cfg(test)]
pub(crate) mod pipe;
pub(crate) mod reader;
pub(crate) mod rotation;
mod tail;
pub(crate) mod time;
pub(crate) mod writer;
