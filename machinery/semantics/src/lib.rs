//! Rules that several components share: what a pod requests, how it is ranked, whether it is ready, where it may run,
//! which endpoints a service has, and when a schedule runs.
//!
//! Pure functions over `k8s-openapi` values and plain ones; nothing waits or reads a clock (callers pass the time).
//! Scheduler, node agent, proxy, controllers and the API server's validation ask the same functions, so that they
//! cannot disagree.

pub mod conditions;
pub mod cron_schedule;
pub mod endpoints;
pub mod host_ports;
pub mod image_names;
pub mod node_affinity;
pub mod node_labels;
pub mod pod_status;
pub mod quota;
pub mod resources;
pub mod selectors;
pub mod shares;
pub mod taints;

pub use endpoints::{EndpointState, ServicePortTarget};
pub use resources::ResourceList;
