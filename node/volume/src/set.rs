//! The volumes of one pod.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Volume};
use machinery_meta::Quantity;
use machinery_runtime::Runtime;
use node_sys::mount::Mounter;

use crate::payload::{self, ObjectSource, PayloadContext};
use crate::{VolumeError, atomic_writer, empty_dir, host_path, sub_path};

/// What a node has to give: the answer to a limit that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeResources {
    /// Thousandths of a processor.
    pub cpu_millis: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Local storage.
    pub ephemeral_storage_bytes: i64,
}

impl NodeResources {
    pub(crate) fn of(&self, resource: &str) -> Quantity {
        match resource {
            "cpu" => Quantity::from_millis(self.cpu_millis),
            "memory" => Quantity::from_units(self.memory_bytes),
            "ephemeral-storage" => Quantity::from_units(self.ephemeral_storage_bytes),
            _ => Quantity::from_units(0),
        }
    }
}

/// Sets up and takes down the volumes of one pod below its folder.
#[derive(Clone)]
pub struct VolumeSet {
    runtime: Runtime,
    pod_folder: PathBuf,
    mounter: Arc<dyn Mounter>,
    objects: Arc<dyn ObjectSource>,
    node: NodeResources,
}

impl std::fmt::Debug for VolumeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeSet")
            .field("pod_folder", &self.pod_folder)
            .finish_non_exhaustive()
    }
}

impl VolumeSet {
    /// The volumes below a pod's folder.
    pub fn new(
        runtime: Runtime,
        pod_folder: PathBuf,
        mounter: Arc<dyn Mounter>,
        objects: Arc<dyn ObjectSource>,
        node: NodeResources,
    ) -> Self {
        Self {
            runtime,
            pod_folder,
            mounter,
            objects,
            node,
        }
    }

    /// Where a volume's content is; for a hostPath, the machine's own path.
    pub fn host_path(&self, volume: &Volume) -> PathBuf {
        if let Some(source) = &volume.host_path {
            return PathBuf::from(&source.path);
        }
        self.pod_folder
            .join("volumes")
            .join(plugin_folder(volume))
            .join(&volume.name)
    }

    /// Makes every volume's content appear, or brings it up to date. Errors carry the volume's name.
    pub async fn set_up(&self, pod: &Pod) -> Result<(), (String, VolumeError)> {
        let volumes = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.volumes.as_deref())
            .unwrap_or_default();
        for volume in volumes {
            self.set_up_one(pod, volume)
                .await
                .map_err(|error| (volume.name.clone(), error))?;
        }
        Ok(())
    }

    async fn set_up_one(&self, pod: &Pod, volume: &Volume) -> Result<(), VolumeError> {
        let group = fs_group(pod);
        let path = self.host_path(volume);
        if let Some(source) = &volume.empty_dir {
            return empty_dir::set_up(&path, source, self.mounter.as_ref(), group);
        }
        if let Some(source) = &volume.host_path {
            return host_path::set_up(source).map(drop);
        }
        let context = PayloadContext {
            pod,
            objects: self.objects.as_ref(),
            node: &self.node,
        };
        let Some(payload) = payload::of_volume(&context, volume).await? else {
            return Err(VolumeError::Invalid(format!(
                "volume {:?} has a type this node does not provide",
                volume.name
            )));
        };
        std::fs::create_dir_all(&path).map_err(VolumeError::io("making", &path))?;
        // What only the API server knows stays out of the disk.
        if volume.config_map.is_none() && !self.mounter.is_mount_point(&path)? {
            self.mounter.tmpfs(&path, None)?;
        }
        if let Some(group) = group {
            std::os::unix::fs::chown(&path, None, Some(group))
                .map_err(VolumeError::io("giving to its group", &path))?;
        }
        node_sys::fs::set_mode(&path, if group.is_some() { 0o2777 } else { 0o1777 })
            .map_err(VolumeError::io("setting the mode of", &path))?;
        let stamp = self.runtime.now().strftime("%Y_%m_%d_%H_%M_%S.%N").to_string();
        atomic_writer::write(&path, &payload, &stamp, group).map(drop)
    }

    /// Shows a part of a volume to one mount of one container, and returns where.
    pub fn sub_path(
        &self,
        volume: &Volume,
        container: &str,
        mount: usize,
        inside: &str,
    ) -> Result<PathBuf, VolumeError> {
        let folder = self.pod_folder.join("volume-subpaths").join(&volume.name);
        let target = folder.join(container).join(mount.to_string());
        sub_path::show(self.mounter.as_ref(), &self.host_path(volume), inside, &target)?;
        Ok(target)
    }

    /// Unmounts and removes everything below the pod's folder, the folder included.
    pub fn tear_down(&self) -> Result<(), VolumeError> {
        for point in self.mounter.below(&self.pod_folder)? {
            self.mounter.unmount(&point)?;
        }
        // Something mounted that did not come off would have its content deleted: look again.
        if let Some(left) = self.mounter.below(&self.pod_folder)?.first() {
            return Err(VolumeError::Invalid(format!(
                "{} is still mounted",
                left.display()
            )));
        }
        match std::fs::remove_dir_all(&self.pod_folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(VolumeError::io("removing", &self.pod_folder)),
        }
    }

    /// The pod's folder.
    pub fn pod_folder(&self) -> &Path {
        &self.pod_folder
    }
}

/// Upstream's folder name of a volume type.
fn plugin_folder(volume: &Volume) -> &'static str {
    if volume.empty_dir.is_some() {
        "kubernetes.io~empty-dir"
    } else if volume.config_map.is_some() {
        "kubernetes.io~configmap"
    } else if volume.secret.is_some() {
        "kubernetes.io~secret"
    } else if volume.downward_api.is_some() {
        "kubernetes.io~downward-api"
    } else {
        "kubernetes.io~projected"
    }
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}
