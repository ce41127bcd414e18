//! Checks of the profiles that confine a pod's processes: AppArmor, SELinux, seccomp, and masks of `/proc`.

use super::Verdict;
use crate::evaluation::Violation;
use crate::pod::Pod;
use crate::wording::{containers, counted, quoted, setters};
use k8s_openapi::api::core::v1::{PodSecurityContext, SELinuxOptions, SecurityContext};
use machinery_meta::go_text::go_quote;
use std::collections::BTreeSet;

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Begin of a profile's name in annotations: the profile is a file of the node.
const LOCALHOST: &str = "localhost/";
const RUNTIME_DEFAULT: &str = "runtime/default";

const SE_LINUX_TYPES: [&str; 5] = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// Types of profiles that are set and not allowed, and by whom.
struct BadTypes<'a> {
    by_pod: bool,
    containers: Vec<&'a str>,
    types: BTreeSet<&'a str>,
}

impl<'a> BadTypes<'a> {
    fn of(
        pod: &Pod<'a>,
        of_pod: fn(&PodSecurityContext) -> Option<&str>,
        of_container: fn(&SecurityContext) -> Option<&str>,
    ) -> Self {
        let mut types = BTreeSet::new();
        let mut is_bad = |own: Option<&'a str>| {
            let bad = own.filter(|own| !is_good_type(own));
            types.extend(bad);
            bad.is_some()
        };
        let by_pod = is_bad(pod.security().and_then(of_pod));
        let containers = pod.names(|own| is_bad(own.security.and_then(of_container)));
        Self {
            by_pod,
            containers,
            types,
        }
    }

    fn setters(&self) -> Vec<String> {
        setters(self.by_pod, &self.containers)
    }
}

fn is_good_type(text: &str) -> bool {
    matches!(text, "RuntimeDefault" | "Localhost")
}

pub(super) fn app_armor_profile(pod: &Pod<'_>) -> Verdict {
    let bad = BadTypes::of(
        pod,
        |own| Some(&*own.app_armor_profile.as_ref()?.type_),
        |own| Some(&*own.app_armor_profile.as_ref()?.type_),
    );
    let is_bad = |(key, value): &(&String, &String)| {
        let is_good = value.is_empty() || *value == RUNTIME_DEFAULT || value.starts_with(LOCALHOST);
        key.starts_with(APP_ARMOR_ANNOTATION) && !is_good
    };
    let annotations = pod.annotations.into_iter().flatten().filter(is_bad);
    let mut annotations: Vec<String> = annotations
        .map(|(key, value)| format!("{key}={}", go_quote(value)))
        .collect();
    annotations.sort();
    let noun = counted(annotations.len(), "annotation", "annotations");
    let noun = (!annotations.is_empty()).then(|| noun.to_owned());
    let setters: Vec<String> = bad.setters().into_iter().chain(noun).collect();
    let types = bad.types.into_iter().map(str::to_owned);
    let values: Vec<String> = types.chain(annotations).collect();
    (!setters.is_empty()).then(|| Violation {
        reason: counted(
            values.len(),
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
        ),
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            quoted(values)
        ),
    })
}

/// Checks the profiles in annotations, which they are before 1.19.
pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Verdict {
    let is_good =
        |value: &str| value == RUNTIME_DEFAULT || value == "docker/default" || value.starts_with(LOCALHOST);
    let of_containers = pod
        .containers()
        .map(|own| format!("{SECCOMP_ANNOTATION}{}", own.name));
    let keys = std::iter::once(SECCOMP_POD_ANNOTATION.to_owned()).chain(of_containers);
    let forbidden = keys.filter_map(|key| {
        let value = pod.annotation(&key).filter(|value| !is_good(value))?;
        Some(format!("{key}={}", go_quote(value)))
    });
    let forbidden: BTreeSet<String> = forbidden.collect();
    let noun = counted(forbidden.len(), "annotation", "annotations");
    let shown = forbidden
        .iter()
        .map(String::as_str)
        .collect::<Vec<&str>>()
        .join(", ");
    (!forbidden.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!("forbidden {noun} {shown}"),
    })
}

fn seccomp_of_pod(security: &PodSecurityContext) -> Option<&str> {
    Some(&security.seccomp_profile.as_ref()?.type_)
}

fn seccomp_of_container(security: &SecurityContext) -> Option<&str> {
    Some(&security.seccomp_profile.as_ref()?.type_)
}

pub(super) fn seccomp_profile_baseline(pod: &Pod<'_>) -> Verdict {
    let bad = BadTypes::of(pod, seccomp_of_pod, seccomp_of_container);
    let setters = bad.setters().join(" and ");
    (!setters.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "{setters} must not set securityContext.seccompProfile.type to {}",
            quoted(bad.types)
        ),
    })
}

pub(super) fn seccomp_profile_restricted(pod: &Pod<'_>) -> Verdict {
    if let Some(bad) = seccomp_profile_baseline(pod) {
        return Some(bad);
    }
    let of_pod = pod.security().and_then(seccomp_of_pod);
    let unset = pod.names(|own| own.security.and_then(seccomp_of_container).is_none());
    let is_unsaid = of_pod.is_none() && !unset.is_empty();
    is_unsaid.then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&unset)
        ),
    })
}

pub(super) fn se_linux_options_1_0(pod: &Pod<'_>) -> Verdict {
    se_linux_options(pod, &SE_LINUX_TYPES[..4])
}

pub(super) fn se_linux_options_1_31(pod: &Pod<'_>) -> Verdict {
    se_linux_options(pod, &SE_LINUX_TYPES)
}

fn se_linux_options(pod: &Pod<'_>, allowed: &[&str]) -> Verdict {
    let (mut types, mut sets_user, mut sets_role) = (BTreeSet::new(), false, false);
    let mut is_bad = |own: Option<&SELinuxOptions>| {
        let text = |own: Option<&String>| own.cloned().unwrap_or_default();
        let is_set = |own: Option<&String>| own.is_some_and(|own| !own.is_empty());
        let own_type = text(own.and_then(|own| own.type_.as_ref()));
        let user = is_set(own.and_then(|own| own.user.as_ref()));
        let role = is_set(own.and_then(|own| own.role.as_ref()));
        (sets_user, sets_role) = (sets_user || user, sets_role || role);
        let is_allowed = allowed.contains(&&*own_type);
        if !is_allowed {
            types.insert(own_type);
        }
        !is_allowed || user || role
    };
    let by_pod = is_bad(pod.security().and_then(|own| own.se_linux_options.as_ref()));
    let names = pod.names(|own| is_bad(own.security.and_then(|own| own.se_linux_options.as_ref())));
    let setters = setters(by_pod, &names).join(" and ");
    let types =
        (!types.is_empty()).then(|| format!("{} {}", counted(types.len(), "type", "types"), quoted(&types)));
    let user = sets_user.then(|| "user may not be set".to_owned());
    let role = sets_role.then(|| "role may not be set".to_owned());
    let data: Vec<String> = types.into_iter().chain(user).chain(role).collect();
    (!setters.is_empty()).then(|| Violation {
        reason: "seLinuxOptions",
        detail: format!(
            "{setters} set forbidden securityContext.seLinuxOptions: {}",
            data.join("; ")
        ),
    })
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Verdict {
    let mut types = BTreeSet::new();
    let names = pod.names(|own| {
        let own = own.security.and_then(|own| own.proc_mount.as_deref());
        let bad = own.filter(|own| *own != "Default");
        types.extend(bad);
        bad.is_some()
    });
    (!names.is_empty()).then(|| Violation {
        reason: "procMount",
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            containers(&names),
            quoted(types)
        ),
    })
}
