//! Container logs: the formats that runtimes write, reading them back, and keeping them small.

pub mod following;
mod generations;
pub mod line;
pub mod reader;
pub mod rotation;
mod tail;
pub mod time;
pub mod writer;
