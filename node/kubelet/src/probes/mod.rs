//! Probes: whether a container has started, lives, and is ready for traffic.
//!
//! A container that runs has one task per declared probe ([`manager`]); a result that changes wakes the
//! pod's worker, which reads all results at once as a [`ProbeView`]. [`handler`] has the ways in which a probe checks: [`command`],
//! [`http`], [`grpc`] and a TCP connection.
//! A liveness or readiness probe waits until the startup probe has succeeded.

mod command;
pub(crate) mod grpc;
pub(crate) mod handler;
pub(crate) mod http;
pub(crate) mod manager;

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(crate) use manager::ProbeManager;

/// Kind of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeKind {
    /// Has it started?
    Startup,
    /// Does it live?
    Liveness,
    /// May it get traffic?
    Readiness,
}

impl ProbeKind {
    /// The name in events.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// Results known of one container; `None` is "not known yet".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProbeResults {
    /// Of the startup probe.
    pub(crate) startup: Option<bool>,
    /// Of the liveness probe.
    pub(crate) liveness: Option<bool>,
    /// Of the readiness probe.
    pub(crate) readiness: Option<bool>,
}

/// The results of a pod's containers at one moment, by container id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProbeView {
    results: HashMap<String, ProbeResults>,
}

impl ProbeView {
    /// A view of these results.
    pub(crate) fn new(results: HashMap<String, ProbeResults>) -> Self {
        Self { results }
    }

    fn of(&self, id: &str) -> ProbeResults {
        self.results.get(id).copied().unwrap_or_default()
    }

    /// Reports whether a running container counts as started.
    pub(crate) fn started(&self, id: &str, container: &Container) -> bool {
        container.startup_probe.is_none() || self.of(id).startup == Some(true)
    }

    /// Reports whether a started container counts as ready.
    pub(crate) fn ready(&self, id: &str, container: &Container) -> bool {
        container.readiness_probe.is_none() || self.of(id).readiness == Some(true)
    }

    /// Reports whether the startup probe has failed its threshold.
    pub(crate) fn startup_failed(&self, id: &str) -> bool {
        self.of(id).startup == Some(false)
    }

    /// Reports whether the liveness probe has failed its threshold.
    pub(crate) fn liveness_failed(&self, id: &str) -> bool {
        self.of(id).liveness == Some(false)
    }
}

/// The number of a port that may be given by its name in the container.
pub(crate) fn port_number(port: &IntOrString, ports: &[ContainerPort]) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => match name.parse() {
            Ok(number) => Some(number),
            Err(_) => {
                let found = ports.iter().find(|port| port.name.as_ref() == Some(name))?;
                u16::try_from(found.container_port).ok()
            }
        },
    }
}
