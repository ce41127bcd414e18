//! Black-box checks that know only the API.

pub mod bench;
