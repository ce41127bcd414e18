//! Service addresses to endpoints, in nftables.
//!
//! Services and endpoint slices come from informers ([`model`]). Which endpoints take part is upstream's rule
//! ([`choice`]); a service becomes elements of maps ([`rules`]); what differs from before ([`elements`]) becomes one
//! transaction that the kernel takes whole or not at all ([`kernel`]): elements over netlink ([`netlink`]), the whole
//! table at the start as text for `nft` ([`mod@table`]). UDP flows that lead to where a
//! service no longer does are forgotten ([`conntrack`]).
//!
//! The table is our own and its chains never change; a change of one service is a handful of elements, with thirty
//! thousand services as with three. The kernel is never asked what it has. When the proxy ends, its rules stay.
//!
//! Not here yet: IPv6, topology hints, health check ports, source ranges of load balancers. Affinity is by a hash of
//! the client's address over the endpoints, without upstream's time limit.

pub mod choice;
pub mod config;
pub mod conntrack;
mod driver;
pub mod elements;
pub mod kernel;
pub mod model;
pub mod netlink;
pub mod rules;
pub mod table;
#[cfg(test)]
mod tests;

pub use config::ProxyConfig;
pub use driver::start;
pub use kernel::{Kernel, KernelError, LinuxKernel, LinuxKernel as Programs};
