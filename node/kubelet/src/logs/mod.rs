//! Container logs: the format the runtime writes, reading it back, and keeping it small.

pub mod following;
mod generations;
pub mod line;
pub mod reader;
pub mod rotation;
