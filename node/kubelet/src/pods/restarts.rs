//! Restarts of containers: a container's rules by exit code come first, then its own policy, then the pod's (KEP-5307).
//! A rule may restart all containers of the pod (KEP-5532). Each such end closes a [`round`]: containers of an earlier
//! one are ended, and start again in the order of a new pod. The round is noted at each container in the runtime, so that
//! the next agent knows it too.

use super::observed::{ContainerState, ObservedContainer, ObservedPod};
use super::{all_containers, spec};
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod};

/// Restart policy of a pod or container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    /// Restarts after any exit code.
    Always,
    /// After a failure.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    /// The pod's policy.
    pub(crate) fn of(pod: &Pod) -> Self {
        Self::named(spec(pod).restart_policy.as_deref())
    }

    /// The container's own policy, or else the pod's: what counts where there is no exit code, as when a probe failed.
    pub(crate) fn of_container(pod: &Pod, container: &Container) -> Self {
        match container.restart_policy.as_deref() {
            None => Self::of(pod),
            own => Self::named(own),
        }
    }

    fn named(name: Option<&str>) -> Self {
        match name {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Reason of a container that waits, since all of its pod are restarted.
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";
/// Its message.
pub(crate) const RESTARTING_ALL_MESSAGE: &str =
    "The container is removed because RestartAllContainers in place";

/// Reports whether a container that ended with this code starts again: alone, or with all of its pod.
pub(crate) fn starts_again(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    rule(container, exit_code).is_some() || RestartPolicy::of_container(pod, container).restarts(exit_code)
}

/// Reports whether a container is not run again in a new sandbox: it succeeded and was to do so once. Rules do not count.
pub(crate) fn is_done(pod: &Pod, container: &Container, found: &ObservedContainer) -> bool {
    let once = RestartPolicy::of_container(pod, container) == RestartPolicy::OnFailure;
    once && found.state == ContainerState::Exited && found.exit_code == 0
}

/// Reports whether this end of a container restarts all containers of its pod.
pub(crate) fn restarts_all(container: &Container, exit_code: i32) -> bool {
    rule(container, exit_code).is_some_and(asks_for_all)
}

/// Reports whether some end of some container restarts all of them.
pub(crate) fn may_restart_all(pod: &Pod) -> bool {
    let rules = |container: &Container| container.restart_policy_rules.iter().flatten().any(asks_for_all);
    all_containers(pod).any(|(_, container)| rules(container))
}

fn asks_for_all(rule: &ContainerRestartRule) -> bool {
    rule.action == "RestartAllContainers"
}

/// The first rule that fits; rules count only beside a policy of the container's own.
fn rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    // Validation refuses rules without a policy of the container's own.
    container.restart_policy.as_ref()?;
    let mut rules = container.restart_policy_rules.iter().flatten();
    rules.find(|rule| {
        let Some(codes) = &rule.exit_codes else {
            return false;
        };
        let named = codes.values.iter().flatten().any(|code| *code == exit_code);
        match codes.operator.as_str() {
            "In" => named,
            "NotIn" => !named,
            _ => false,
        }
    })
}

/// Stage of restarting all containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundStage {
    /// None has to restart, or the first has.
    Begun,
    /// The end of one requests a new round; what is left of the earlier one ends.
    Ending,
    /// Nothing of the earlier round runs, and nothing of the new one was made.
    Ended,
}

impl RoundStage {
    /// The stage, from what the runtime has.
    pub(crate) fn of(pod: &Pod, observed: &ObservedPod) -> Self {
        let round = round(pod, observed);
        let own = |found: &&ObservedContainer| all_containers(pod).any(|(_, own)| own.name == found.name);
        let mut all = observed.containers.iter().filter(own).peekable();
        if all.peek().is_none() || all.clone().any(|found| found.round == round) {
            return Self::Begun;
        }
        match all.all(|found| found.state == ContainerState::Exited) {
            true => Self::Ended,
            false => Self::Ending,
        }
    }
}

/// The container whose end requests a new round, if none of that was made yet.
pub(crate) fn source_of_round<'a>(
    pod: &'a Pod,
    observed: &'a ObservedPod,
) -> Option<(&'a Container, &'a ObservedContainer)> {
    if RoundStage::of(pod, observed) == RoundStage::Begun {
        return None;
    }
    all_containers(pod).find_map(|(_, container)| {
        let found = observed.latest(&container.name)?;
        let asks = found.state == ContainerState::Exited && restarts_all(container, found.exit_code);
        asks.then_some((container, found))
    })
}

/// The pod's present round: one more than that of the newest container whose end restarts all.
pub(crate) fn round(pod: &Pod, observed: &ObservedPod) -> u32 {
    if !may_restart_all(pod) {
        return 0;
    }
    let closes = |found: &ObservedContainer| {
        let mut containers = all_containers(pod).map(|(_, container)| container);
        found.state == ContainerState::Exited
            && containers.any(|own| own.name == found.name && restarts_all(own, found.exit_code))
    };
    // The maximum over all containers that the runtime has: records of an earlier round may be collected, and
    // the number must not fall.
    let rounds = observed.containers.iter().map(|found| match closes(found) {
        true => found.round.saturating_add(1),
        false => found.round,
    });
    rounds.max().unwrap_or(0)
}
