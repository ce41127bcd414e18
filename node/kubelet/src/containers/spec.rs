//! One container as CRI wants it. Pure but for looking at sub paths.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};
use node_cri::v1;
use node_volume::VolumeSet;

use super::arguments::{Argument, ArgumentRoom, expand};
use super::{StartError, huge_pages, resources, security};
use crate::pods::observed::{annotation, label};
use crate::pods::plan::container_hash;
use crate::pods::{name, namespace, spec, uid};

/// No system call takes a longer path.
const PATH_BYTES_MAX: usize = 4096;

/// Everything a container's configuration is made from.
#[derive(Debug)]
pub(crate) struct ContainerInput<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// The container.
    pub(crate) container: &'a Container,
    /// Number of restarts.
    pub(crate) restart_count: i32,
    /// Round of the pod ([`crate::pods::restarts::round`]).
    pub(crate) round: u32,
    /// The image as the runtime knows it.
    pub(crate) image: &'a str,
    /// User that the image runs as.
    pub(crate) image_user: &'a security::ImageUser,
    /// Its environment.
    pub(crate) environment: &'a [(String, String)],
    /// The pod's volumes.
    pub(crate) volumes: &'a VolumeSet,
    /// The pod's hosts file.
    pub(crate) hosts: Option<&'a Path>,
    /// The file of its termination message.
    pub(crate) message: &'a Path,
    /// Its log relative to the pod's folder of logs.
    pub(crate) log_path: &'a str,
    /// The runtime's id of the container whose processes it is to see.
    pub(crate) target: Option<&'a str>,
    /// The machine's memory.
    pub(crate) memory: resources::MemoryFacts,
    /// Sizes of huge pages that the machine has, in bytes.
    pub(crate) page_sizes: &'a [u64],
    /// Directory of the `localhostProfile`s.
    pub(crate) seccomp_root: &'a str,
}

/// Builds the configuration of a container for the runtime.
pub(crate) fn config(input: &ContainerInput<'_>) -> Result<v1::ContainerConfig, StartError> {
    let container = input.container;
    let environment = input.environment.iter();
    let values: HashMap<&str, &str> = environment
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let lookup = |name: &str| values.get(name).copied();
    let (command, args) = words(container, input.environment, lookup)?;
    let mut security =
        security::container_context(input.pod, container, input.image_user, input.seccomp_root)?;
    security::add_groups(&mut security, input.volumes.groups());
    if let (Some(target), Some(namespaces)) = (input.target, &mut security.namespace_options) {
        security::share_processes(namespaces, target);
    }
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: u32::try_from(input.restart_count).unwrap_or(0),
        }),
        image: Some(v1::ImageSpec {
            image: input.image.to_string(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..v1::ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: input
            .environment
            .iter()
            .map(|(key, value)| v1::KeyValue {
                key: key.clone(),
                value: value.clone(),
            })
            .collect(),
        mounts: mounts(input, lookup)?,
        labels: labels(input),
        annotations: annotations(input),
        log_path: input.log_path.to_string(),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(v1::LinuxContainerResources {
                hugepage_limits: huge_pages::container_limits(input.pod, container, input.page_sizes),
                ..resources::container_limits(input.pod, container, input.memory)
            }),
            security_context: Some(security),
        }),
        ..v1::ContainerConfig::default()
    })
}

/// `command` and `args`, as far as the environment leaves room for them.
fn words<'v>(
    container: &Container,
    environment: &[(String, String)],
    lookup: impl Fn(&str) -> Option<&'v str> + Copy,
) -> Result<(Vec<String>, Vec<String>), StartError> {
    let mut room = ArgumentRoom::new();
    for (name, value) in environment {
        room.take(Argument::Variable(name), value.len())?;
    }
    let mut expanded = |field, words: &Option<Vec<String>>| -> Result<Vec<String>, StartError> {
        let words = words.iter().flatten().enumerate();
        words
            .map(|(at, word)| room.expand(Argument::Word(field, at), word, lookup))
            .collect()
    };
    Ok((
        expanded("command", &container.command)?,
        expanded("args", &container.args)?,
    ))
}

fn labels(input: &ContainerInput<'_>) -> HashMap<String, String> {
    let labels = [
        (label::POD_NAME, name(input.pod)),
        (label::POD_NAMESPACE, namespace(input.pod)),
        (label::POD_UID, uid(input.pod)),
        (label::CONTAINER_NAME, &input.container.name),
    ];
    labels
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn annotations(input: &ContainerInput<'_>) -> HashMap<String, String> {
    let policy = input
        .container
        .termination_message_policy
        .clone()
        .unwrap_or_else(|| "File".into());
    let annotations = [
        (annotation::HASH, container_hash(input.container)),
        (annotation::RESTART_COUNT, input.restart_count.to_string()),
        (annotation::ROUND, input.round.to_string()),
        (
            annotation::TERMINATION_MESSAGE,
            input.message.display().to_string(),
        ),
        (annotation::TERMINATION_MESSAGE_POLICY, policy),
    ];
    annotations
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect()
}

fn mounts<'v>(
    input: &ContainerInput<'_>,
    lookup: impl Fn(&str) -> Option<&'v str> + Copy,
) -> Result<Vec<v1::Mount>, StartError> {
    let mut mounts = Vec::new();
    for (place, mount) in input.container.volume_mounts.iter().flatten().enumerate() {
        mounts.push(volume_mount(input, place, mount, lookup)?);
    }
    let own = |container_path: &str, host: PathBuf| v1::Mount {
        container_path: container_path.to_string(),
        host_path: host.display().to_string(),
        ..v1::Mount::default()
    };
    mounts.extend(input.hosts.map(|path| own("/etc/hosts", path.to_path_buf())));
    let message = input
        .container
        .termination_message_path
        .as_deref()
        .unwrap_or("/dev/termination-log");
    if !message.is_empty() {
        mounts.push(own(message, input.message.to_path_buf()));
    }
    Ok(mounts)
}

fn volume_mount<'v>(
    input: &ContainerInput<'_>,
    place: usize,
    mount: &VolumeMount,
    lookup: impl Fn(&str) -> Option<&'v str> + Copy,
) -> Result<v1::Mount, StartError> {
    if mount.recursive_read_only.as_deref() == Some("Enabled") {
        // containerd before 2.0 would leave what is mounted below writable; no node of ours says it can do it.
        return Err(StartError::config(format!(
            "failed to resolve recursive read-only mode: volume {:?} requested recursive read-only mode, but it is not supported by the runtime",
            mount.name
        )));
    }
    let volumes = spec(input.pod).volumes.iter().flatten();
    let volume = volumes
        .into_iter()
        .find(|volume| volume.name == mount.name)
        .ok_or_else(|| {
            StartError::config(format!(
                "cannot find volume {:?} to mount into container {:?}",
                mount.name, input.container.name
            ))
        })?;
    let mut host = input.volumes.host_path(volume);
    let inside = match (&mount.sub_path, &mount.sub_path_expr) {
        (Some(path), _) if !path.is_empty() => Some(path.clone()),
        (_, Some(template)) if !template.is_empty() => Some(expand_all(template, lookup)?),
        _ => None,
    };
    if let Some(inside) = inside {
        let container = &input.container.name;
        host = input
            .volumes
            .sub_path(volume, container, place, &inside)
            .map_err(|error| {
                StartError::config(format!(
                    "failed to prepare subPath for volumeMount \"{}\" of container \"{}\": {error}",
                    mount.name, container
                ))
            })?;
    }
    let propagation = match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
        _ => v1::MountPropagation::PropagationPrivate,
    };
    let container_path = if mount.mount_path.starts_with('/') {
        mount.mount_path.clone()
    } else {
        format!("/{}", mount.mount_path)
    };
    Ok(v1::Mount {
        container_path,
        host_path: host.display().to_string(),
        readonly: is_read_only(mount, volume),
        propagation: propagation as i32,
        ..v1::Mount::default()
    })
}

/// Reports whether the runtime mounts a volume read-only. That of an image is so already, and for all: runc would replace its other
/// options (no program of it runs) by this one.
fn is_read_only(mount: &VolumeMount, volume: &Volume) -> bool {
    let wanted = mount.read_only == Some(true) || is_of_objects(volume) || is_read_only_source(volume);
    wanted && volume.image.is_none()
}

/// Reports whether a volume has its files from API objects: it is replaced as a whole and mounted read-only.
fn is_of_objects(volume: &Volume) -> bool {
    let sources = [
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.downward_api.is_some(),
        volume.projected.is_some(),
    ];
    sources.contains(&true)
}

fn is_read_only_source(volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref();
    let of_claim = claim.and_then(|claim| claim.read_only);
    let of_driver = volume.csi.as_ref().and_then(|own| own.read_only);
    of_claim.or(of_driver) == Some(true)
}

/// A sub path must not be left with an unknown reference in it.
fn expand_all<'v>(template: &str, lookup: impl Fn(&str) -> Option<&'v str>) -> Result<String, StartError> {
    let missing = std::cell::RefCell::new(None);
    let value = expand(template, PATH_BYTES_MAX, |name| {
        let found = lookup(name);
        if found.is_none() {
            missing.replace(Some(name.to_string()));
        }
        found
    });
    if let Some(name) = missing.into_inner() {
        return Err(StartError::config(format!("missing value for {name:?}")));
    }
    let too_long = || format!("subPathExpr makes a path longer than {PATH_BYTES_MAX} bytes");
    value.ok_or_else(|| StartError::config(too_long()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_path_has_all_its_references_and_ends_where_a_path_does() {
        let value = "x".repeat(100);
        let lookup = |name: &str| (name == "A").then_some(value.as_str());
        assert_eq!(expand_all("a/$(A)", lookup).unwrap(), format!("a/{value}"));
        let refused = |template: &str| expand_all(template, lookup).unwrap_err().message;
        assert_eq!(refused("$(A)/$(B)"), "missing value for \"B\"");
        assert_eq!(
            refused(&"$(A)".repeat(41)),
            "subPathExpr makes a path longer than 4096 bytes"
        );
    }

    #[test]
    fn arguments_have_the_room_that_the_environment_leaves() {
        let container = |args: usize| Container {
            command: Some(vec!["run".into(), "$(A)".into()]),
            args: Some(vec!["$(A)".into(); args]),
            ..Container::default()
        };
        let environment = [("A".to_owned(), "x".repeat(120 << 10))];
        let made = |args: usize| {
            words(&container(args), &environment, |name| {
                (name == "A").then_some(environment[0].1.as_str())
            })
        };
        let (command, args) = made(49).unwrap();
        assert_eq!((command[1].len(), args.len()), (120 << 10, 49));
        let error = made(60).unwrap_err();
        assert_eq!(error.reason, "CreateContainerConfigError");
        assert!(
            error.message.starts_with("args[49]: arguments and environment"),
            "{error}"
        );
    }
}
