//! Rejections of pods that this node does not run, decided before a pod starts; reasons and messages are upstream's. Pure.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_semantics::{node_affinity, taints};

use super::resize::allocation::Shortage;
use super::spec;
use crate::containers::{app_armor, security, sysctl};
use crate::resource_managers::rejection::AllocationError;

/// Security features of the machine and its runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// `uname -r`.
    pub(crate) kernel_version: String,
    /// The kernel confines processes by AppArmor profiles.
    pub(crate) app_armor: bool,
    /// The runtime can leave out the groups that the image gives its user.
    pub(crate) supplemental_groups_policy: bool,
}

/// Reason and message of a rejected pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// One word.
    pub(crate) reason: Cow<'static, str>,
    /// A sentence.
    pub(crate) message: String,
}

impl Rejection {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason: Cow::Borrowed(reason),
            message: message.into(),
        }
    }

    fn predicate(name: &'static str, why: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {why}"))
    }

    /// Rejection of a critical pod whose preemption of others failed.
    pub(crate) fn unexpected(why: &str) -> Self {
        let message = format!(
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of \
             pods to preempt: {why}"
        );
        Self::new("UnexpectedAdmissionError", message)
    }

    /// Rejection of a pod whose devices cannot be allocated.
    pub(crate) fn unexpected_allocation(why: &str) -> Self {
        let message = format!("Allocate failed due to {why}, which is unexpected");
        Self::new("UnexpectedAdmissionError", message)
    }

    /// Reports whether only the node's labels reject the pod: they may have changed since they were received.
    pub(crate) fn is_node_affinity(&self) -> bool {
        self.reason == NODE_AFFINITY
    }
}

const NODE_AFFINITY: &str = "NodeAffinity";

impl From<AllocationError> for Rejection {
    fn from(error: AllocationError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

impl From<Shortage> for Rejection {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::Resource(name, message) => Self {
                reason: Cow::Owned(format!("OutOf{name}")),
                message,
            },
            Shortage::Ports => Self::predicate(
                "NodePorts",
                "node(s) didn't have free ports for the requested pod ports",
            ),
        }
    }
}

/// Checks a bound pod against the Node object: its node affinity and selector, as upstream.
pub(crate) fn node_rejection(pod: &Pod, node: &Node) -> Option<Rejection> {
    let labels = node.metadata.labels.as_ref();
    let facts = node_affinity::NodeFacts {
        name: node.metadata.name.as_deref().unwrap_or_default(),
        labels: |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str),
    };
    if !facts.satisfies(spec(pod)) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Some(Rejection::predicate(NODE_AFFINITY, why));
    }
    None
}

/// Rejects a pod that a `NoExecute` taint of the node would evict at once.
pub(crate) fn taint_rejection(pod: &Pod, node: &Node) -> Option<Rejection> {
    let all = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let tolerations = spec(pod).tolerations.as_deref().unwrap_or_default();
    // Other effects do not count: the scheduler applies `NoSchedule`, and pods that are bound by hand run
    // nevertheless (upstream's `generalFilter`).
    let mut ending = all
        .unwrap_or_default()
        .iter()
        .filter(|taint| taint.effect == taints::NO_EXECUTE);
    let untolerated = ending.any(|taint| !taints::is_tolerated(taint, tolerations));
    untolerated.then(|| {
        Rejection::predicate(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        )
    })
}

/// A pod that requests a protection it would not get must not run without it.
pub(crate) fn rejection(pod: &Pod, abilities: &Abilities) -> Option<Rejection> {
    let sysctls = sysctl::forbidden(pod, &abilities.kernel_version)
        .map(|message| Rejection::new("SysctlForbidden", message));
    sysctls
        .or_else(|| operating_system(pod))
        .or_else(|| groups(pod, abilities))
        .or_else(|| app_armor(pod, abilities))
}

fn operating_system(pod: &Pod) -> Option<Rejection> {
    const LINUX: &str = "linux";
    let labels = pod.metadata.labels.as_ref();
    let wanted = labels.and_then(|labels| labels.get("kubernetes.io/os"));
    if wanted.is_some_and(|wanted| wanted != LINUX) {
        return Some(Rejection::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    let other = spec(pod).os.as_ref().is_some_and(|os| os.name != LINUX);
    other.then(|| {
        Rejection::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        )
    })
}

fn groups(pod: &Pod, abilities: &Abilities) -> Option<Rejection> {
    let strict = security::supplemental_groups_are_strict(pod);
    (strict && !abilities.supplemental_groups_policy).then(|| {
        Rejection::new(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )
    })
}

/// Refuses a profile that the node cannot enforce, but not of a pod that runs already: it is confined as it was started.
fn app_armor(pod: &Pod, abilities: &Abilities) -> Option<Rejection> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let came_up = phase.is_some_and(|phase| phase != "Pending");
    let refusal = app_armor::refusal(pod, abilities.app_armor).filter(|_| !came_up)?;
    Some(Rejection::new(
        "AppArmor",
        format!("Cannot enforce AppArmor: {refusal}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a pod with this security context and this one of its container on a node that is `able`.
    #[track_caller]
    fn check(able: bool, general: &str, own: &str, expected: Option<(&str, &str)>) {
        let abilities = Abilities {
            kernel_version: "6.1.0".to_owned(),
            app_armor: able,
            supplemental_groups_policy: able,
        };
        let text = format!(
            r#"{{"spec":{{"securityContext":{{{general}}},"containers":[{{"name":"c","securityContext":{{{own}}}}}]}}}}"#
        );
        let pod: Pod = serde_json::from_str(&text).unwrap();
        let found = rejection(&pod, &abilities);
        let found = found
            .as_ref()
            .map(|found| (found.reason.as_ref(), found.message.as_str()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn admission_unsupported_protection_is_refused() {
        let armor = Some((
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ));
        let groups = Some((
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ));
        let local = r#""appArmorProfile":{"type":"Localhost","localhostProfile":"strict"}"#;
        let default = r#""appArmorProfile":{"type":"RuntimeDefault"}"#;
        let none = r#""appArmorProfile":{"type":"Unconfined"}"#;
        let strict = r#""supplementalGroupsPolicy":"Strict""#;
        check(false, "", "", None);
        check(false, "", local, armor);
        check(false, default, "", armor);
        check(false, none, none, None);
        check(true, default, local, None);
        check(false, strict, "", groups);
        check(true, strict, "", None);
        check(false, r#""supplementalGroupsPolicy":"Merge""#, "", None);
        let sysctl = r#""sysctls":[{"name":"kernel.shmmax","value":"1"}]"#;
        let forbidden = r#"forbidden sysctl: "kernel.shmmax" not allowlisted"#;
        check(true, sysctl, "", Some(("SysctlForbidden", forbidden)));
    }

    #[test]
    fn admission_running_pod_is_not_evaluated_again() {
        let text = r#"{"spec":{"containers":[],"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}},
            "status":{"phase":"Running"}}"#;
        let pod: Pod = serde_json::from_str(text).unwrap();
        let unable = Abilities {
            kernel_version: String::new(),
            app_armor: false,
            supplemental_groups_policy: false,
        };
        assert_eq!(rejection(&pod, &unable), None);
    }

    fn pod_with(spec: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"spec": spec})).unwrap()
    }

    #[test]
    fn pod_of_another_operating_system_is_refused() {
        let abilities = Abilities {
            kernel_version: "6.1.0".to_owned(),
            app_armor: true,
            supplemental_groups_policy: true,
        };
        let reason = |pod: &Pod| rejection(pod, &abilities).map(|found| found.reason.into_owned());
        let os = |name: &str| pod_with(serde_json::json!({"containers": [], "os": {"name": name}}));
        assert_eq!(reason(&os("linux")), None);
        assert_eq!(reason(&os("windows")).as_deref(), Some("PodOSNotSupported"));
        let mut labelled = os("linux");
        labelled.metadata.labels = Some([("kubernetes.io/os".to_owned(), "windows".to_owned())].into());
        assert_eq!(
            reason(&labelled).as_deref(),
            Some("PodOSSelectorNodeLabelDoesNotMatch")
        );
    }

    #[test]
    fn pod_that_its_node_does_not_fit_is_refused() {
        let taint = |key: &str, effect: &str| serde_json::json!({"key": key, "effect": effect});
        let node: Node = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd"}},
            "spec": {"taints": [taint("soft", "NoSchedule"), taint("hard", "NoExecute")]}
        }))
        .unwrap();
        let tolerations = serde_json::json!([{"key": "hard", "operator": "Exists"}]);
        let pod = |disk: &str| {
            let selector = serde_json::json!({"disk": disk});
            pod_with(
                serde_json::json!({"containers": [], "nodeSelector": selector, "tolerations": tolerations}),
            )
        };
        assert_eq!(node_rejection(&pod("ssd"), &node), None);
        let found = node_rejection(&pod("hdd"), &node).unwrap();
        assert!(found.is_node_affinity());
        assert_eq!(
            found.message,
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        );
        assert_eq!(
            taint_rejection(&pod("ssd"), &node),
            None,
            "it tolerates what ends pods"
        );
        let found = taint_rejection(&pod_with(serde_json::json!({"containers": []})), &node).unwrap();
        assert_eq!(
            found.message,
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        );
    }

    #[test]
    fn shortages_have_upstreams_reasons() {
        let short = |name: &str| Rejection::from(Shortage::Resource(name.to_owned(), "text".to_owned()));
        assert_eq!(short("cpu").reason, "OutOfcpu");
        assert_eq!(short("ephemeral-storage").reason, "OutOfephemeral-storage");
        assert_eq!(Rejection::from(Shortage::Ports).reason, "NodePorts");
    }
}
