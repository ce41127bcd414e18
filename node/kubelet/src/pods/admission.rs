//! What this node never runs, decided at the first look at a pod; names and words are upstream's. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::spec;
use crate::containers::{security, sysctl};

/// What the machine and its runtime can do for a pod's protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// `uname -r`.
    pub kernel_version: String,
    /// The kernel confines processes by AppArmor profiles.
    pub app_armor: bool,
    /// The runtime can leave out the groups that the image gives its user.
    pub supplemental_groups_policy: bool,
}

/// Why a pod is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// A pod that asks for a protection it would not get must not run without it.
pub fn rejection(pod: &Pod, abilities: &Abilities) -> Option<Rejection> {
    let sysctls = sysctl::forbidden(pod, &abilities.kernel_version).map(|message| Rejection {
        reason: "SysctlForbidden",
        message,
    });
    sysctls
        .or_else(|| groups(pod, abilities))
        .or_else(|| app_armor(pod, abilities))
}

fn groups(pod: &Pod, abilities: &Abilities) -> Option<Rejection> {
    let strict = security::supplemental_groups_are_strict(pod);
    (strict && !abilities.supplemental_groups_policy).then(|| Rejection {
        reason: "SupplementalGroupsPolicyNotSupported",
        message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
    })
}

/// A pod that came up already runs as confined as it is.
fn app_armor(pod: &Pod, abilities: &Abilities) -> Option<Rejection> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let came_up = phase.is_some_and(|phase| phase != "Pending");
    let general = spec(pod).security_context.iter();
    let own = security::contexts(pod);
    let profiles = general
        .filter_map(|context| context.app_armor_profile.clone())
        .chain(own.filter_map(|context| context.app_armor_profile));
    let confined = profiles.into_iter().any(|profile| profile.type_ != "Unconfined");
    (confined && !came_up && !abilities.app_armor).then(|| Rejection {
        reason: "AppArmor",
        message: "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the node of `able` says of a pod with this security context and this one of its container.
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
        let found = found.as_ref().map(|found| (found.reason, found.message.as_str()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_protection_that_is_not_there_is_refused() {
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
    fn who_runs_already_is_left_alone() {
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
}
