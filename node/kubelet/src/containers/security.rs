//! Security contexts: the pod's and the container's as CRI wants them. Pure.

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SeccompProfile, SecurityContext};
use node_cri::v1;
use node_cri::v1::security_profile::ProfileType;

use super::{StartError, app_armor};
use crate::pods::ephemeral::ephemeral_containers;
use crate::pods::{all_containers, full_name_with_uid, spec};

const MASKED_PATHS: [&str; 9] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/sys/firmware",
];
const MORE_MASKED_PATHS: [&str; 4] = [
    "/proc/timer_stats",
    "/proc/scsi",
    "/sys/devices/virtual/powercap",
    "/sys/devices/system/cpu/cpu0/thermal_throttle",
];
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

fn pod_context(pod: &Pod) -> PodSecurityContext {
    spec(pod).security_context.clone().unwrap_or_default()
}

/// Reports whether a container is privileged.
pub(crate) fn privileged(container: &Container) -> bool {
    container
        .security_context
        .as_ref()
        .is_some_and(|context| context.privileged == Some(true))
}

/// Reports whether the supplemental groups of the image are left out (policy `Strict`).
pub(crate) fn supplemental_groups_are_strict(pod: &Pod) -> bool {
    let context = spec(pod).security_context.as_ref();
    context.is_some_and(|context| context.supplemental_groups_policy.as_deref() == Some("Strict"))
}

fn groups_policy(pod: &Pod) -> i32 {
    let policy = match supplemental_groups_are_strict(pod) {
        true => v1::SupplementalGroupsPolicy::Strict,
        false => v1::SupplementalGroupsPolicy::Merge,
    };
    policy as i32
}

/// Namespaces as the pod requests them.
pub(crate) fn namespaces(pod: &Pod) -> v1::NamespaceOption {
    let spec = spec(pod);
    let node_or = |node: Option<bool>, otherwise: v1::NamespaceMode| {
        if node == Some(true) {
            v1::NamespaceMode::Node as i32
        } else {
            otherwise as i32
        }
    };
    let pid = if spec.share_process_namespace == Some(true) {
        v1::NamespaceMode::Pod
    } else {
        v1::NamespaceMode::Container
    };
    v1::NamespaceOption {
        network: node_or(spec.host_network, v1::NamespaceMode::Pod),
        pid: node_or(spec.host_pid, pid),
        ipc: node_or(spec.host_ipc, v1::NamespaceMode::Pod),
        target_id: String::new(),
        userns_options: None,
    }
}

/// Shares the process namespace of `target` with a container that would have its own.
pub(crate) fn share_processes(namespaces: &mut v1::NamespaceOption, target: &str) {
    if namespaces.pid == v1::NamespaceMode::Container as i32 {
        namespaces.pid = v1::NamespaceMode::Target as i32;
        namespaces.target_id = target.to_string();
    }
}

/// The sandbox's context.
pub(crate) fn sandbox_context(pod: &Pod) -> v1::LinuxSandboxSecurityContext {
    let context = pod_context(pod);
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)),
        run_as_user: context.run_as_user.map(|value| v1::Int64Value { value }),
        run_as_group: context.run_as_group.map(|value| v1::Int64Value { value }),
        supplemental_groups: groups(&context),
        supplemental_groups_policy: groups_policy(pod),
        // A privileged container needs a privileged sandbox.
        privileged: all_containers(pod).any(|(_, container)| privileged(container))
            || ephemeral_containers(pod).any(|container| privileged(&container)),
        seccomp: Some(profile(ProfileType::RuntimeDefault, "")),
        ..v1::LinuxSandboxSecurityContext::default()
    }
}

fn groups(context: &PodSecurityContext) -> Vec<i64> {
    context
        .supplemental_groups
        .iter()
        .flatten()
        .copied()
        .chain(context.fs_group)
        .collect()
}

pub(super) fn profile(kind: ProfileType, path: &str) -> v1::SecurityProfile {
    v1::SecurityProfile {
        profile_type: kind as i32,
        localhost_ref: path.to_string(),
    }
}

fn seccomp(profile_wanted: Option<&SeccompProfile>, seccomp_root: &str) -> v1::SecurityProfile {
    match profile_wanted.map(|wanted| (wanted.type_.as_str(), wanted.localhost_profile.as_deref())) {
        Some(("RuntimeDefault", _)) => profile(ProfileType::RuntimeDefault, ""),
        Some(("Localhost", path)) => profile(
            ProfileType::Localhost,
            &format!("{seccomp_root}/{}", path.unwrap_or_default()),
        ),
        _ => profile(ProfileType::Unconfined, ""),
    }
}

/// User of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    /// As a number.
    pub(crate) uid: Option<i64>,
    /// As a name.
    pub(crate) name: String,
}

/// The container's context, or why it may not run so.
pub(crate) fn container_context(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    seccomp_root: &str,
) -> Result<v1::LinuxContainerSecurityContext, StartError> {
    let general = pod_context(pod);
    let own = container.security_context.clone().unwrap_or_default();
    let run_as_user = own.run_as_user.or(general.run_as_user);
    check_non_root(&general, &own, run_as_user, image_user).map_err(|problem| {
        let (pod, name) = (full_name_with_uid(pod), &container.name);
        StartError::config(format!("{problem} (pod: {pod:?}, container: {name})"))
    })?;
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    if unmasked && spec(pod).host_users != Some(false) {
        // The rights of the machine's own users reach through an open /proc.
        return Err(StartError::config("`hostUsers` must be false to use `Unmasked`"));
    }
    let all_rights = own.privileged == Some(true);
    let masked = !all_rights && !unmasked;
    let capabilities = own.capabilities.clone().unwrap_or_default();
    Ok(v1::LinuxContainerSecurityContext {
        capabilities: Some(v1::Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: all_rights,
        namespace_options: Some(namespaces(pod)),
        run_as_user: run_as_user
            .or(image_user.uid)
            .map(|value| v1::Int64Value { value }),
        run_as_username: if run_as_user.is_none() {
            image_user.name.clone()
        } else {
            String::new()
        },
        run_as_group: own
            .run_as_group
            .or(general.run_as_group)
            .map(|value| v1::Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&general),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if masked {
            list(&[&MASKED_PATHS[..], &MORE_MASKED_PATHS[..]])
        } else {
            Vec::new()
        },
        readonly_paths: if masked {
            list(&[&READONLY_PATHS[..]])
        } else {
            Vec::new()
        },
        seccomp: Some(if all_rights {
            profile(ProfileType::Unconfined, "")
        } else {
            seccomp(
                own.seccomp_profile.as_ref().or(general.seccomp_profile.as_ref()),
                seccomp_root,
            )
        }),
        // Without a profile the runtime has one of its own.
        apparmor: app_armor::profile(pod, container)
            .as_ref()
            .map(app_armor::of_runtime),
        ..v1::LinuxContainerSecurityContext::default()
    })
}

/// Adds groups that volumes bring to those that the pod requests.
pub(crate) fn add_groups(
    context: &mut v1::LinuxContainerSecurityContext,
    groups: impl IntoIterator<Item = i64>,
) {
    let own = &mut context.supplemental_groups;
    for group in groups {
        if !own.contains(&group) {
            own.push(group);
        }
    }
}

fn list(parts: &[&[&str]]) -> Vec<String> {
    parts
        .iter()
        .flat_map(|part| part.iter())
        .map(|path| (*path).to_string())
        .collect()
}

fn check_non_root(
    general: &PodSecurityContext,
    own: &SecurityContext,
    run_as_user: Option<i64>,
    image_user: &ImageUser,
) -> Result<(), String> {
    if own.run_as_non_root.or(general.run_as_non_root) != Some(true) {
        return Ok(());
    }
    match (run_as_user, image_user.uid, image_user.name.as_str()) {
        (Some(0), _, _) => Err("container's runAsUser breaks non-root policy".to_owned()),
        (Some(_), _, _) => Ok(()),
        (None, _, name) if !name.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root"
        )),
        (None, None | Some(0), _) => Err("container has runAsNonRoot and image will run as root".to_owned()),
        (None, Some(_), _) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_container_profile_precedes_pod_profile() {
        let text = r#"{"spec":{"securityContext":{"supplementalGroupsPolicy":"Strict",
            "appArmorProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"a"},{"name":"b","securityContext":
            {"appArmorProfile":{"type":"Localhost","localhostProfile":"strict"}}}]}}"#;
        let pod: Pod = serde_json::from_str(text).unwrap();
        let expected = [
            (ProfileType::RuntimeDefault, ""),
            (ProfileType::Localhost, "strict"),
        ];
        for (container, (kind, path)) in spec(&pod).containers.iter().zip(expected) {
            let context = container_context(&pod, container, &ImageUser::default(), "").unwrap();
            assert_eq!(context.apparmor, Some(profile(kind, path)));
            assert_eq!(
                context.supplemental_groups_policy,
                v1::SupplementalGroupsPolicy::Strict as i32
            );
        }
    }

    #[test]
    fn security_groups_of_volumes_come_after_the_pods_own() {
        let pod: Pod = serde_json::from_str(
            r#"{"spec":{"securityContext":{"supplementalGroups":[5],"fsGroup":6},"containers":[{"name":"c"}]}}"#,
        )
        .unwrap();
        let container = &spec(&pod).containers[0];
        let mut context = container_context(&pod, container, &ImageUser::default(), "").unwrap();
        add_groups(&mut context, [1234, 5]);
        assert_eq!(context.supplemental_groups, [5, 6, 1234]);
    }

    #[test]
    fn security_unmasked_proc_needs_user_namespace() {
        let pod = |host_users: &str| -> Pod {
            let text = format!(
                r#"{{"spec":{{{host_users}"containers":[{{"name":"c","securityContext":{{"procMount":"Unmasked"}}}}]}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let context = |pod: &Pod| container_context(pod, &spec(pod).containers[0], &ImageUser::default(), "");
        let refused = context(&pod("")).unwrap_err();
        assert_eq!(refused.message, "`hostUsers` must be false to use `Unmasked`");
        assert!(
            context(&pod(r#""hostUsers":false,"#))
                .unwrap()
                .masked_paths
                .is_empty()
        );
    }
}
