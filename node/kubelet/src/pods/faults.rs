//! Reasons for which a running container is stopped, in upstream's words. Pure.

use super::ContainerKind;
use super::observed::ObservedContainer;
use super::plan::container_hash;
use super::resize::{Amounts, asks_for_restart};
use super::restarts::RestartPolicy;
use crate::probes::ProbeView;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};

/// Reason for a running container to stop.
pub(super) struct Fault {
    /// For the event.
    pub(super) message: String,
    /// A grace period that overrides the pod's.
    pub(super) grace_seconds: Option<i64>,
    /// True where it starts again.
    pub(super) restarts: bool,
}

impl Fault {
    /// The first that is found: another image, a resize that needs a restart, a failed probe.
    pub(super) fn of(
        pod: &Pod,
        (kind, container): (ContainerKind, &Container),
        found: &ObservedContainer,
        probes: &ProbeView,
        (from, to): &(Amounts, Amounts),
    ) -> Option<Self> {
        let subject = format!("{} {}", noun(kind), container.name);
        if found.hash != container_hash(container) {
            return Some(Self::new(&subject, "definition changed", kind, true));
        }
        if asks_for_restart(container, *from, *to) {
            return Some(Self::restart(format!("{subject} resize requires restart")));
        }
        let restarts = RestartPolicy::of_container(pod, container) != RestartPolicy::Never;
        let failed = |probe: &str, own: &Option<Probe>| {
            let fault = Self::new(&subject, &format!("failed {probe} probe"), kind, restarts);
            let grace_seconds = own.as_ref().and_then(|own| own.termination_grace_period_seconds);
            Some(Self {
                grace_seconds,
                ..fault
            })
        };
        if probes.startup_failed(&found.id) {
            return failed("startup", &container.startup_probe);
        }
        if probes.liveness_failed(&found.id) {
            return failed("liveness", &container.liveness_probe);
        }
        None
    }

    /// The runtime does not know whether the container runs.
    pub(super) fn unknown_state(kind: ContainerKind) -> Self {
        let noun = noun(kind);
        Self::restart(format!(
            "{noun} is in \"unknown\" state, try killing it before restart"
        ))
    }

    fn restart(message: String) -> Self {
        Self {
            message,
            grace_seconds: None,
            restarts: true,
        }
    }

    /// Of regular containers alone the message says that they start again.
    fn new(subject: &str, what: &str, kind: ContainerKind, restarts: bool) -> Self {
        let and = match kind == ContainerKind::Regular && restarts {
            true => ", will be restarted",
            false => "",
        };
        Self {
            restarts,
            ..Self::restart(format!("{subject} {what}{and}"))
        }
    }
}

fn noun(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init | ContainerKind::Sidecar => "Init container",
        ContainerKind::Regular | ContainerKind::Ephemeral => "Container",
    }
}
