//! The node agent: makes the pods bound to one node run, and says truthfully how they are.
//!
//! A pod's way through it: the watch of `spec.nodeName` ([`pods::source`]) hands every change to the
//! pod's own worker ([`pods::worker`]). The worker looks at what the runtime has ([`pods::observed`]),
//! decides ([`pods::plan`], pure), acts through CRI ([`containers`]), and writes the status that follows
//! ([`pods::status`], pure) when it differs from the last one. It is woken by the API, by containerd's
//! event stream, by probes and by its own timers; a slow relist is the safety net.
//!
//! Each feature is a folder: [`images`], [`probes`], [`logs`], [`eviction`], [`node`] (registration, lease, status),
//! [`server`] (port 10250), [`plugins`] (their registration), [`devices`] (their devices), [`dra`] (devices of claims), [`resource_managers`] (processors and memory that containers have alone), [`cdi`] (how some of both get into containers), [`csi`] (their volumes), [`containerd`] (the private instance), [`cgroup_driver`] (the program that makes groups), [`static_pods`] (pods of files and of a URL), [`shutdown`] (their end when the machine goes down), [`oom`] (events of a machine without memory), [`trust_bundles`] and
//! [`pod_certificates`] (projections of the certificates API). [`managers`] lists what runs, in start order; [`kubelet`] assembles it.
//!
//! Never: anything that survives only in this process. Restart counts, hashes and message paths are
//! annotations of the containers, so an agent that starts again finds every running container and
//! restarts none. Facts of its pods that come from the API server alone lie in their folders ([`pods::saved`]).

mod api;
pub mod cdi;
pub mod cgroup_driver;
pub mod config;
pub mod containerd;
pub mod containers;
#[cfg(test)]
mod cri_answers;
mod csi;
pub mod devices;
mod dra;
pub mod eviction;
mod families;
pub mod images;
pub mod kubelet;
mod local_volumes;
mod logs;
mod managers;
mod metrics;
pub mod node;
mod oom;
pub mod plugins;
mod pod_certificates;
mod pod_resources;
mod pods;
mod probes;
pub mod resource_managers;
mod runtime_errors;
mod saving;
mod server;
mod shown;
pub mod shutdown;
pub mod static_pods;
mod trust_bundles;

pub use config::{KubeletConfig, SwapBehavior};
pub use kubelet::{Host, Kubelet, KubeletError};
pub use node::taints::{RegistrationTaint, TaintError};
pub use server::system_logs::SystemLogsConfig;
