//! AppArmor profiles of containers (upstream's `pkg/security/apparmor`). Pure.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};
use node_cri::v1::SecurityProfile;
use node_cri::v1::security_profile::ProfileType;

use super::security;
use crate::pods::ephemeral::ephemeral_containers;
use crate::pods::{all_containers, spec};

/// First part of the annotations' keys; the container's name follows.
const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Returns the profile of a container. Its annotation stands between its own field and the pod's: the API server makes
/// fields of annotations, and static pods do not come by it.
pub(crate) fn profile(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let own = container.security_context.as_ref();
    let general = || spec(pod).security_context.as_ref()?.app_armor_profile.clone();
    own.and_then(|context| context.app_armor_profile.clone())
        .or_else(|| annotated(pod, &container.name))
        .or_else(general)
}

fn annotated(pod: &Pod, container: &str) -> Option<AppArmorProfile> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let text = annotations.get(&format!("{PREFIX}{container}"))?;
    let local = text.strip_prefix("localhost/");
    let kind = match text.as_str() {
        "runtime/default" => "RuntimeDefault",
        "unconfined" => "Unconfined",
        _ => local.map(|_| "Localhost")?,
    };
    Some(AppArmorProfile {
        type_: kind.to_owned(),
        localhost_profile: local.map(str::to_owned),
    })
}

/// Returns the reason why a node cannot run a pod as confined as it is to be.
pub(crate) fn refusal(pod: &Pod, is_enabled: bool) -> Option<&'static str> {
    let of_pod = spec(pod).security_context.as_ref();
    let general = of_pod.and_then(|context| context.app_armor_profile.clone());
    let lasting = all_containers(pod).filter_map(|(_, container)| profile(pod, container));
    let ephemeral = ephemeral_containers(pod).filter_map(|container| profile(pod, &container));
    let all: Vec<AppArmorProfile> = general.into_iter().chain(lasting).chain(ephemeral).collect();
    let is_nameless = |profile: &AppArmorProfile| {
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        profile.type_ == "Localhost" && name.trim().is_empty()
    };
    if !all.iter().any(|profile| profile.type_ != "Unconfined") {
        None
    } else if !is_enabled {
        Some("AppArmor is not enabled on the host")
    } else {
        let nameless = all.iter().any(is_nameless);
        nameless.then_some("invalid empty AppArmor profile name")
    }
}

/// Returns a profile as the runtime takes it.
pub(super) fn of_runtime(profile: &AppArmorProfile) -> SecurityProfile {
    let (kind, name) = match profile.type_.as_str() {
        "RuntimeDefault" => (ProfileType::RuntimeDefault, ""),
        "Localhost" => (
            ProfileType::Localhost,
            profile.localhost_profile.as_deref().unwrap_or_default(),
        ),
        _ => (ProfileType::Unconfined, ""),
    };
    security::profile(kind, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: &str = r#"{"type":"Localhost","localhostProfile":"strict"}"#;
    const RUNTIME: &str = r#"{"type":"RuntimeDefault"}"#;

    fn pod(annotation: &str, general: &str, own: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"annotations":{{"{PREFIX}c":"{annotation}"}}}},"spec":{{"securityContext":
                {{"appArmorProfile":{general}}},"containers":[{{"name":"c","securityContext":{{"appArmorProfile":{own}}}}}]}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// The annotation of a container, the pod's field and the container's; the profile that the container has.
    #[track_caller]
    fn check(annotation: &str, general: &str, own: &str, expected: Option<(&str, Option<&str>)>) {
        let pod = pod(annotation, general, own);
        let found = profile(&pod, &spec(&pod).containers[0]);
        let found = found
            .as_ref()
            .map(|it| (it.type_.as_str(), it.localhost_profile.as_deref()));
        assert_eq!(found, expected, "{annotation} {general} {own}");
    }

    #[test]
    fn app_armor_annotation_stands_between_the_fields() {
        check(
            "localhost/strict",
            "null",
            "null",
            Some(("Localhost", Some("strict"))),
        );
        check(
            "localhost/strict",
            RUNTIME,
            "null",
            Some(("Localhost", Some("strict"))),
        );
        check("unconfined", RUNTIME, STRICT, Some(("Localhost", Some("strict"))));
        check("unconfined", RUNTIME, "null", Some(("Unconfined", None)));
        check("runtime/default", "null", "null", Some(("RuntimeDefault", None)));
        // One that says nothing leaves the pod's.
        check("docker/default", RUNTIME, "null", Some(("RuntimeDefault", None)));
        check("", "null", "null", None);
    }

    #[test]
    fn app_armor_annotation_is_refused_where_it_cannot_be_enforced() {
        let refused = |annotation: &str, is_enabled| refusal(&pod(annotation, "null", "null"), is_enabled);
        assert_eq!(
            refused("localhost/strict", false),
            Some("AppArmor is not enabled on the host")
        );
        assert_eq!(refused("localhost/strict", true), None);
        assert_eq!(
            refused("localhost/ ", true),
            Some("invalid empty AppArmor profile name")
        );
        assert_eq!(refused("unconfined", false), None);
    }
}
