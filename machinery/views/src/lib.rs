//! Read models of kinds that several components of one process read, and the informers that these share.
//!
//! A component that alone reads a kind keeps its own view of it (decisions 0111 and 0124). Services and endpoint slices are
//! read by the proxy and the DNS server of each agent: [`ServiceViews`] watches each kind once for both.
//!
//! ```text
//! watches -> Service, Slice (once per event) -> proxy: rules
//!                                            -> DNS: names
//! ```
//!
//! Nothing here acts: which endpoints receive traffic and which names exist is decided by the readers.

mod endpoint_slice;
mod protocol;
mod service;
mod shared;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod view_memory;

pub use endpoint_slice::{BY_SERVICE, Endpoint, EndpointNames, Slice, SlicePort};
pub use protocol::Protocol;
pub use service::{Policy, Service, ServicePort};
pub use shared::{Followed, ServiceViews};
