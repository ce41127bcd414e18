//! IPAddress: an address that something holds, named by itself.
pub mod validation;
