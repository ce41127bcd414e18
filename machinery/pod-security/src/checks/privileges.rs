//! Checks of the rights of a pod's processes: privileges, capabilities and users.

use super::Verdict;
use crate::evaluation::Violation;
use crate::pod::Pod;
use crate::wording::{containers, quoted, setters};
use k8s_openapi::api::core::v1::SecurityContext;
use std::collections::BTreeSet;

/// Capabilities that containers have unless they drop them.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The one capability that `restricted` lets a container add.
const ADDABLE: [&str; 1] = ["NET_BIND_SERVICE"];

pub(super) fn privileged(pod: &Pod<'_>) -> Verdict {
    let names = pod.names(|own| own.security.and_then(|own| own.privileged) == Some(true));
    (!names.is_empty()).then(|| Violation {
        reason: "privileged",
        detail: format!(
            "{} must not set securityContext.privileged=true",
            containers(&names)
        ),
    })
}

pub(super) fn allow_privilege_escalation(pod: &Pod<'_>) -> Verdict {
    let names = pod.names(|own| own.security.and_then(|own| own.allow_privilege_escalation) != Some(false));
    (!names.is_empty()).then(|| Violation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            containers(&names)
        ),
    })
}

fn added(security: Option<&SecurityContext>) -> impl Iterator<Item = &str> {
    let own = security.and_then(|own| own.capabilities.as_ref());
    own.and_then(|own| own.add.as_ref())
        .into_iter()
        .flatten()
        .map(String::as_str)
}

/// The detail of containers that add other capabilities than these.
fn adds_others(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut forbidden = BTreeSet::new();
    let names = pod.names(|container| {
        let own: Vec<&str> = added(container.security)
            .filter(|own| !allowed.contains(own))
            .collect();
        let adds = !own.is_empty();
        forbidden.extend(own);
        adds
    });
    (!names.is_empty()).then(|| {
        let forbidden = quoted(forbidden);
        format!(
            "{} must not include {forbidden} in securityContext.capabilities.add",
            containers(&names)
        )
    })
}

pub(super) fn capabilities_baseline(pod: &Pod<'_>) -> Verdict {
    adds_others(pod, &DEFAULT_CAPABILITIES).map(|detail| Violation {
        reason: "non-default capabilities",
        detail,
    })
}

pub(super) fn capabilities_restricted(pod: &Pod<'_>) -> Verdict {
    let drops_all = |security: &SecurityContext| {
        let dropped = security.capabilities.as_ref().and_then(|own| own.drop.as_ref());
        dropped.is_some_and(|dropped| dropped.iter().any(|own| own == "ALL"))
    };
    let keeping = pod.names(|own| !own.security.is_some_and(drops_all));
    let keeping = (!keeping.is_empty()).then(|| {
        format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers(&keeping)
        )
    });
    let details: Vec<String> = keeping.into_iter().chain(adds_others(pod, &ADDABLE)).collect();
    (!details.is_empty()).then(|| Violation {
        reason: "unrestricted capabilities",
        detail: details.join("; "),
    })
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Verdict {
    let reason = "runAsNonRoot != true";
    let of_pod = pod.security().and_then(|own| own.run_as_non_root);
    let set_to =
        |value: Option<bool>| pod.names(|own| own.security.and_then(|own| own.run_as_non_root) == value);
    let setters = setters(of_pod == Some(false), &set_to(Some(false))).join(" and ");
    if !setters.is_empty() {
        let detail = format!("{setters} must not set securityContext.runAsNonRoot=false");
        return Some(Violation { reason, detail });
    }
    let unset = set_to(None);
    let is_unsaid = of_pod != Some(true) && !unset.is_empty();
    is_unsaid.then(|| Violation {
        reason,
        detail: format!(
            "pod or {} must set securityContext.runAsNonRoot=true",
            containers(&unset)
        ),
    })
}

pub(super) fn run_as_user(pod: &Pod<'_>) -> Verdict {
    let names = pod.names(|own| own.security.and_then(|own| own.run_as_user) == Some(0));
    let by_pod = pod.security().and_then(|own| own.run_as_user) == Some(0);
    let setters = setters(by_pod, &names).join(" and ");
    (!setters.is_empty()).then(|| Violation {
        reason: "runAsUser=0",
        detail: format!("{setters} must not set runAsUser=0"),
    })
}
