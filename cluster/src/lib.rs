//! The assembled control plane as a library: storage, API server, controllers and scheduler in this process.
//!
//! [`Cluster::builder`] decides runtime, storage, address, ranges and which controllers run; `start` answers once the
//! server serves. Components reach the server through its own service stack, each with its upstream identity; no socket
//! is opened unless an address is requested. Clusters share nothing: hundreds live side by side, and dropping one ends
//! every task it has.
//!
//! ```text
//! let cluster = Cluster::builder().runtime(runtime).start().await?;
//! let pods: PodList = cluster.admin().list_as(…).await?;
//! ```
//!
//! The simulator is this crate over a simulated runtime, with a [`Faults`] transport between the components and the
//! server. There is no other API server, and no fake one.

mod builder;
mod candidate;
mod components;
mod error;
mod faults;
mod fence;
pub mod identities;
mod known_keys;
mod refusals;

pub use builder::{Cluster, ClusterBuilder};
pub use components::LeaderElection;
pub use controllers_manager::manager::Selection;
pub use controllers_manager::{Config as ControllerConfig, HorizontalPodAutoscalerConfig};
pub use controllers_scheduler::{
    Configuration as SchedulerConfiguration, ConfigurationError as SchedulerConfigurationError,
};
pub use error::ClusterError;
pub use faults::{Faults, Rates, Request};
pub use known_keys::known_keys;
