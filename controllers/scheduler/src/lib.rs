//! Places pods on nodes.
//!
//! Events keep a table of nodes ([`nodes`]) and a queue of waiting pods ([`queue`]) current. One pod at a time
//! is taken from the queue and placed ([`algorithm`]) by the plugins ([`plugins`], what they may do is in
//! [`framework`]): filters reject nodes, scores rank the rest, or a share of them in a large cluster ([`search`]). The plugins' answers for
//! single nodes are kept per pod shape ([`evaluation`]) and caught up row by row, so that the thousandth replica
//! costs the one row that changed; what depends on other pods comes from counters ([`selector_counts`]).
//! The pod is then assumed on its node and bound in the background. A pod that fits nowhere gets the reasons, in
//! upstream's words ([`diagnosis`]), others may have to go for it ([`preemption`]), and it waits until something
//! happens that could help.
//!
//! Pods name a [`profile`], whose plugins and arguments are those of the [`config`]. [`metrics`] counts. Among the nodes
//! that a pod fits, the cluster's [`policy`] may choose instead of the scores. Other servers may be asked ([`extender`]).
//!
//! Everything but the driver is pure: no clock, no client, no randomness of its own.

mod actions;
mod active;
pub mod algorithm;
mod asking;
pub mod attempt;
pub mod change;
mod claim_users;
pub mod cluster_events;
pub mod config;
pub mod decision;
pub mod declared_features;
pub mod devices;
pub mod diagnosis;
pub mod disks;
mod driver;
pub mod evaluation;
mod events;
pub mod extended_requests;
mod extender;
mod footprint;
pub mod framework;
mod intake;
mod measuring;
pub mod meter;
pub mod metrics;
pub mod node_id;
pub mod node_state;
mod node_terms;
pub mod nodes;
pub mod object;
mod owner_selectors;
mod placed;
pub mod plugins;
pub mod pod;
pub mod pod_terms;
pub mod policy;
mod post_filter;
pub mod preemption;
pub mod profile;
mod projections;
pub mod queue;
pub mod rejection;
pub mod resources;
pub mod scheduler;
mod search;
mod selector;
pub mod selector_counts;
mod short_lists;
mod sources;
pub mod sparse_column;
pub mod tallies;
#[cfg(test)]
mod tests;
pub mod topology;
mod unschedulable;
pub mod usage;
pub mod volumes;
pub mod wakes;

pub use config::{Configuration, ConfigurationError};
pub use driver::{MAX_IN_FLIGHT, Settings, start};
pub use metrics::Metrics;
pub use owner_selectors::{OwnerKind, OwnerSelectors};
