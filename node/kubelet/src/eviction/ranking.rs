//! The order in which pods are evicted for a signal, upstream's. Pure.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use machinery_semantics::resources::pod_requests;

use super::signal::{Signal, Starved};
use super::usage::PodUsage;
use crate::pods::spec;

/// A pod that could end, and its usage; `None` where that is unknown.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// The pod.
    pub(crate) pod: Arc<Pod>,
    /// Its usage.
    pub(crate) usage: Option<PodUsage>,
}

/// Kinds of a pod's files on the disk of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilesOf {
    /// Containers' own files.
    pub(crate) root: bool,
    /// Logs.
    pub(crate) logs: bool,
    /// Volumes on the node's disk.
    pub(crate) volumes: bool,
}

impl FilesOf {
    /// The files that count for a signal: all, or those of one of two file systems.
    pub(crate) fn signal(signal: Signal, has_image_fs: bool) -> Self {
        let of_images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
        Self {
            root: of_images || !has_image_fs,
            logs: !of_images || !has_image_fs,
            volumes: !of_images || !has_image_fs,
        }
    }
}

/// Puts the candidates in order, the first to be evicted first: pods whose usage is not known, those above their
/// requests, those of lower priority, those that use most above their requests. Process ids cannot be requested: there
/// priority comes first.
pub(crate) fn rank(candidates: &mut [Candidate], signal: Signal, files: FilesOf) {
    match signal.resource() {
        Starved::Memory => by_excess(candidates, |usage, pod| {
            let request = request(pod, "memory");
            (usage.memory_bytes > request, usage.memory_bytes - request)
        }),
        Starved::Storage => by_excess(candidates, |usage, pod| {
            let (used, request) = (usage.disk(files).0, request(pod, "ephemeral-storage"));
            (used > request, used - request)
        }),
        // Inodes cannot be requested; upstream takes the request of bytes from them.
        Starved::Inodes => by_excess(candidates, |usage, pod| {
            let used = usage.disk(files).1;
            (used > 0, used - request(pod, "ephemeral-storage"))
        }),
        Starved::Pids => candidates.sort_by_key(|own| {
            let tasks = own.usage.as_ref().map(|usage| usage.tasks);
            (priority(&own.pod), tasks.is_some(), Reverse(tasks))
        }),
    }
}

/// `excess` says whether a pod is above its requests, and by how much.
fn by_excess(candidates: &mut [Candidate], excess: impl Fn(&PodUsage, &Pod) -> (bool, i64)) {
    candidates.sort_by_key(|own| {
        let known = own.usage.as_ref().map(|usage| excess(usage, &own.pod));
        let (exceeds, amount) = known.unwrap_or((true, 0));
        (known.is_some(), !exceeds, priority(&own.pod), Reverse(amount))
    });
}

fn priority(pod: &Pod) -> i32 {
    spec(pod).priority.unwrap_or(0)
}

fn request(pod: &Pod, resource: &str) -> i64 {
    pod_requests(spec(pod)).get(resource).units()
}
