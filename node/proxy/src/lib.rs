//! Service addresses to endpoints, in nftables.
//!
//! Services and endpoint slices come from informers ([`machinery_views`]). Which endpoints take part is upstream's rule
//! ([`choice`]); each has slots, which it keeps as long as it can ([`slots`]); a service becomes elements of maps
//! ([`rules`]), as many as its namespace has room for; what differs from before ([`elements`]) becomes one transaction that the kernel takes whole or not at
//! all ([`kernel`]): elements over netlink ([`netlink`]), the whole table at the start as text for `nft`
//! ([`mod@table`]). UDP flows that lead to where a service no longer does are forgotten ([`flows`]). Balancers read
//! whether a service has endpoints here ([`health`]).
//!
//! The table is our own and its chains never change; a change of one service is a handful of elements, with thirty
//! thousand services as with three. The wanted elements are in memory; the kernel is read only for what it writes
//! itself, the clients that stay with an endpoint ([`affinity`]). It notifies when another program takes something of the
//! table away, and then all of it is written again. When the proxy ends, its rules stay.
//!
//! Not here yet: IPv6, topology hints.

pub mod affinity;
pub mod choice;
pub mod config;
mod driver;
pub mod elements;
mod events;
pub mod flows;
mod health;
pub mod kernel;
pub mod netlink;
mod node_port_addresses;
mod plans;
pub mod rules;
#[cfg(test)]
mod share_tests;
mod shares;
mod size;
pub mod slots;
pub mod table;
#[cfg(test)]
mod tests;

pub use config::ProxyConfig;
pub use driver::start;
pub use kernel::{Kernel, KernelError, LinuxKernel, LinuxKernel as Programs};
pub use node_port_addresses::{DuplicateKeyword, NodePortAddress, NodePortAddresses, check_keywords};
