//! From a pod's specification to the requests of the runtime, and their sending.
//!
//! [`sandbox`], [`spec`], [`security`] and [`resources`] are pure; [`mod@env`] reads ConfigMaps and Secrets, [`env_files`] the pod's own files, within the room of `arguments`;
//! [`sysctl`] says which kernel parameters a pod may set, [`runtime_class`] the runtime that runs it;
//! [`files`] makes what is mounted beside the volumes; [`hooks`] runs postStart and preStop, [`stopping`] ends what runs; and
//! [`tiers`] keeps the groups of the classes, which [`groups`] names; [`control`] puts it together: pull, create, start, stop, each step with its event.

pub(crate) mod app_armor;
mod arguments;
pub(crate) mod control;
pub mod dns;
pub(crate) mod env;
pub(crate) mod env_files;
pub(crate) mod files;
pub(crate) mod groups;
pub(crate) mod hooks;
pub(crate) mod huge_pages;
mod image_volumes;
pub(crate) mod log_links;
pub(crate) mod resources;
pub(crate) mod runtime_class;
pub(crate) mod sandbox;
pub(crate) mod sandbox_turns;
pub(crate) mod security;
pub(crate) mod spec;
pub(crate) mod stopping;
pub(crate) mod sysctl;
pub(crate) mod tiers;
mod unusable;

/// A step of starting a container that failed: the reason its status shows, and the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub(crate) struct StartError {
    /// One word, as in `kubectl get pods`.
    pub(crate) reason: &'static str,
    /// Message of the status.
    pub(crate) message: String,
}

impl StartError {
    pub(crate) fn config(message: impl std::fmt::Display) -> Self {
        Self {
            reason: "CreateContainerConfigError",
            message: message.to_string(),
        }
    }
}
