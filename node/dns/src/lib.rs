//! Cluster names over UDP and TCP, one server per node.
//!
//! Services and endpoint slices come from informers ([`machinery_views`]) and become names with records ([`zone`]), service by
//! service. A question is read from the message's bytes ([`query`]), looked up ([`resolve`]) and answered
//! ([`answer`]). Names outside of the cluster are asked of other servers ([`forward`], [`upstream`]): each question
//! once at a time, remembered for a while ([`cache`]), and with a share for each client ([`source_slots`]). Misses of the
//! search path (`example.org.default.svc.cluster.local`) end here and never leave the node.
//!
//! The server listens and forwards from its start; the cluster's names come from the zone that the last run saved
//! ([`saved`]) until the API server has delivered the present ones.
//!
//! The messages are read and written by ~200 lines of our own rather than by hickory-server, which spawns outside of
//! any scope; a question costs one lookup and one buffer. The cluster's DNS address is made an address of the node,
//! so pods reach it without translation, and names are answered while the control plane is away. While we are away
//! ourselves the kernel keeps silent on that address instead of refusing, so that resolvers ask again.
//!
//! Pods' own names (`10-244-0-5.ns.pod…`) are answered from what they spell, as upstream's default does.

pub mod answer;
pub mod cache;
pub mod config;
mod driver;
mod following;
mod forward;
#[cfg(test)]
mod forward_tests;
mod keeper;
pub mod query;
mod records;
pub mod resolve;
pub mod saved;
pub mod server;
#[cfg(test)]
mod share_tests;
pub mod source_slots;
#[cfg(test)]
mod tests;
pub mod upstream;
pub mod zone;

pub use config::{DnsConfig, name_servers};
pub use driver::start;
