//! Pods' own limits of local storage: `sizeLimit` of emptyDir, and limits of `ephemeral-storage` of pods and containers; order
//! and words are upstream's. Pure.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod};
use machinery_meta::Quantity;
use machinery_semantics::ResourceList;
use machinery_semantics::resources::{is_sidecar, pod_limits};

use super::usage::PodUsage;
use crate::pods::spec;

const RESOURCE: &str = "ephemeral-storage";

/// A limit that a pod is above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// The signal that metrics count it by.
    pub(crate) signal: &'static str,
    /// Message for status and event.
    pub(crate) message: String,
}

/// Reports whether a pod has a limit of local storage.
pub(crate) fn has_limit(pod: &Pod) -> bool {
    limited_volumes(pod).next().is_some() || pod_limit(pod).is_some()
}

/// Returns the first limit that the pod is above.
pub(crate) fn exceeded(pod: &Pod, usage: &PodUsage, has_image_fs: bool) -> Option<Exceeded> {
    let volume = limited_volumes(pod).find_map(|(name, limit)| {
        let (_, used) = usage.volumes.iter().find(|(own, _)| own == name)?;
        (bytes(used.bytes) > limit).then(|| Exceeded {
            signal: "emptydirfs.limit",
            message: format!("Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "),
        })
    });
    volume
        .or_else(|| pod_exceeded(pod, usage, has_image_fs))
        .or_else(|| container_exceeded(pod, usage, has_image_fs))
}

fn pod_exceeded(pod: &Pod, usage: &PodUsage, has_image_fs: bool) -> Option<Exceeded> {
    let limit = pod_limit(pod)?;
    let used = Quantity::from_bytes(usage.local_storage_bytes(has_image_fs));
    (used > limit).then(|| Exceeded {
        signal: "ephemeralpodfs.limit",
        message: format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "),
    })
}

fn container_exceeded(pod: &Pod, usage: &PodUsage, has_image_fs: bool) -> Option<Exceeded> {
    let limits: Vec<(&str, Quantity)> = limited_containers(pod).collect();
    usage.containers.iter().find_map(|own| {
        let (name, limit) = limits.iter().find(|(name, _)| *name == own.name)?;
        let files = if has_image_fs {
            own.logs
        } else {
            own.root + own.logs
        };
        (bytes(files.bytes) > *limit).then(|| Exceeded {
            signal: "ephemeralcontainerfs.limit",
            message: format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "),
        })
    })
}

fn bytes(amount: u64) -> Quantity {
    Quantity::from_bytes(i64::try_from(amount).unwrap_or(i64::MAX))
}

/// Containers and sidecars with a limit.
fn limited_containers(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    let sidecars = spec(pod).init_containers.iter().flatten();
    let all = spec(pod)
        .containers
        .iter()
        .chain(sidecars.filter(|own| is_sidecar(own)));
    all.filter_map(|own| Some((own.name.as_str(), container_limit(own)?)))
}

fn container_limit(container: &Container) -> Option<Quantity> {
    let limits = container.resources.as_ref()?.limits.as_ref();
    let limit = ResourceList::from_api(limits).get(RESOURCE);
    (!limit.is_zero()).then_some(limit)
}

/// The sum of the limits of containers, where one has any.
fn pod_limit(pod: &Pod) -> Option<Quantity> {
    pod_limits(spec(pod)).0.get(RESOURCE).copied()
}

/// emptyDirs on the disk that have a limit: those in memory are limited by the kernel.
fn limited_volumes(pod: &Pod) -> impl Iterator<Item = (&str, Quantity)> {
    spec(pod).volumes.iter().flatten().filter_map(|volume| {
        let limit = size_limit(volume.empty_dir.as_ref()?)?;
        Some((volume.name.as_str(), limit))
    })
}

fn size_limit(source: &EmptyDirVolumeSource) -> Option<Quantity> {
    let limit: Quantity = source.size_limit.as_ref()?.0.parse().ok()?;
    let is_counted = is_on_disk(source) && !limit.is_zero() && !limit.is_negative();
    is_counted.then_some(limit)
}

/// Reports whether an emptyDir takes room of the node's disk.
pub(crate) fn is_on_disk(source: &EmptyDirVolumeSource) -> bool {
    source.medium.as_deref().unwrap_or_default().is_empty()
}
