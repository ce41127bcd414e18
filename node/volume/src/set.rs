//! The volumes of one pod.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume};
use machinery_meta::Quantity;
use machinery_runtime::Runtime;
use node_sys::blocking::BlockingLane;
use node_sys::mount::{Mounter, TmpfsOptions};
use parking_lot::Mutex;

use crate::atomic_writer::Payload;
use crate::payload::{self, ObjectSource, PayloadContext};
use crate::room::Room;
use crate::{VolumeError, atomic_writer, bounds, empty_dir, host_path, persistent, sub_path};

/// Allocatable resources of a node, which replace limits that are not set.
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

/// A volume's name, and why it could not be set up.
pub type Failure = (String, VolumeError);

/// Sets up and takes down the volumes of one pod below its folder.
#[derive(Clone)]
pub struct VolumeSet {
    runtime: Runtime,
    lane: BlockingLane,
    pod_folder: PathBuf,
    mounter: Arc<dyn Mounter>,
    objects: Arc<dyn ObjectSource>,
    node: NodeResources,
    memory_bytes_max: u64,
}

impl std::fmt::Debug for VolumeSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeSet")
            .field("pod_folder", &self.pod_folder)
            .finish_non_exhaustive()
    }
}

impl VolumeSet {
    /// The volumes below a pod's folder, whose files are touched in the pod's lane. Those in memory hold no more than
    /// the pod may use.
    pub fn new(
        runtime: Runtime,
        lane: BlockingLane,
        pod_folder: PathBuf,
        mounter: Arc<dyn Mounter>,
        objects: Arc<dyn ObjectSource>,
        node: NodeResources,
        memory_bytes_max: u64,
    ) -> Self {
        Self {
            runtime,
            lane,
            pod_folder,
            mounter,
            objects,
            node,
            memory_bytes_max,
        }
    }

    /// Path of a volume's content; for a hostPath, the machine's own path.
    pub fn host_path(&self, volume: &Volume) -> PathBuf {
        if let Some(source) = &volume.host_path {
            return PathBuf::from(&source.path);
        }
        self.pod_folder
            .join("volumes")
            .join(plugin_folder(volume))
            .join(&volume.name)
    }

    /// Makes every volume's content appear, or brings it up to date. Where the API server cannot be asked for it, what was
    /// shown before stays; these volumes are returned with the reason. Errors carry the volume's name.
    pub async fn set_up(&self, pod: &Pod) -> Result<Vec<Failure>, Failure> {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref());
        bounds::check(pod)?;
        let mut all = Vec::new();
        let mut room = Room::of_pod();
        for volume in volumes.unwrap_or_default() {
            let content = match self.content(pod, volume, &mut room).await {
                Ok(content) => content,
                Err(error @ VolumeError::Source(_)) => Content::Before(error),
                Err(error) => return Err((volume.name.clone(), error)),
            };
            all.push((volume.clone(), content));
        }
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let (set, group) = (self.clone(), fs_group(pod));
        let current = Arc::new(Mutex::new(String::new()));
        let begun = current.clone();
        let work = move || {
            let mut old = Vec::new();
            for (volume, content) in all {
                begun.lock().clone_from(&volume.name);
                let path = set.host_path(&volume);
                match content {
                    Content::Before(why) if atomic_writer::is_whole(&path) => old.push((volume.name, why)),
                    content => set
                        .show(&path, content, group)
                        .map_err(|error| (volume.name, error))?,
                }
            }
            Ok(old)
        };
        let outcome = self.lane.run("setting up volumes", work).await;
        outcome.unwrap_or_else(|error| Err((current.lock().clone(), error.into())))
    }

    /// Reads the content of a volume from its sources outside of this machine's disk.
    async fn content(&self, pod: &Pod, volume: &Volume, room: &mut Room) -> Result<Content, VolumeError> {
        if let Some(source) = &volume.empty_dir {
            return Ok(Content::Empty(source.clone()));
        }
        if let Some(source) = &volume.host_path {
            return Ok(Content::Host(source.clone()));
        }
        if let Some(claim) = persistent::claim_of(pod, volume) {
            return self.claimed(pod, volume, &claim).await;
        }
        let context = PayloadContext {
            pod,
            objects: self.objects.as_ref(),
            node: &self.node,
        };
        let Some(payload) = payload::of_volume(&context, volume, room).await? else {
            return Err(VolumeError::Invalid(format!(
                "volume {:?} has a type this node does not provide",
                volume.name
            )));
        };
        Ok(Content::Files {
            payload,
            // What only the API server knows stays out of the disk.
            in_memory: volume.config_map.is_none(),
            stamp: self.runtime.now().strftime("%Y_%m_%d_%H_%M_%S.%N").to_string(),
        })
    }

    /// The volume of a claim. One that is mounted stays so, whatever becomes of its objects.
    async fn claimed(
        &self,
        pod: &Pod,
        volume: &Volume,
        claim: &persistent::ClaimName,
    ) -> Result<Content, VolumeError> {
        let (mounter, path) = (self.mounter.clone(), self.host_path(volume));
        let look = move || mounter.is_mount_point(&path);
        if self.lane.run("looking for a mount", look).await?? {
            return Ok(Content::Mounted);
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = self.objects.claim(namespace, &claim.name).await?;
        let name = persistent::bound_volume(pod, claim, found.as_ref())?;
        let volume = self.objects.persistent_volume(name).await?;
        let found = found.as_ref().expect("a claim that is bound was found");
        persistent::source(name, found, volume.as_ref()).map(Content::Persistent)
    }

    /// Blocks.
    fn show(&self, path: &Path, content: Content, group: Option<u32>) -> Result<(), VolumeError> {
        let (payload, in_memory, stamp) = match content {
            Content::Empty(source) => {
                let mounter = self.mounter.as_ref();
                return empty_dir::set_up(path, &source, mounter, group, self.memory_bytes_max);
            }
            Content::Host(source) => return host_path::set_up(&source).map(drop),
            Content::Before(why) => return Err(why),
            Content::Mounted => return Ok(()),
            Content::Persistent(source) => {
                return persistent::set_up(self.mounter.as_ref(), path, &source, group);
            }
            Content::Files {
                payload,
                in_memory,
                stamp,
            } => (payload, in_memory, stamp),
        };
        std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
        let mode = if group.is_some() { 0o2777 } else { 0o1777 };
        if in_memory && !self.mounter.is_mount_point(path)? {
            let options = TmpfsOptions {
                size_bytes: Some(self.memory_bytes_max),
                mode,
                group,
            };
            self.mounter.tmpfs(path, &options)?;
        }
        if let Some(group) = group {
            std::os::unix::fs::chown(path, None, Some(group))
                .map_err(VolumeError::io("giving to its group", path))?;
        }
        node_sys::fs::set_mode(path, mode).map_err(VolumeError::io("setting the mode of", path))?;
        atomic_writer::write(path, &payload, &stamp, group).map(drop)
    }

    /// Shows a part of a volume to one mount of one container, and returns where. Blocks.
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
    pub async fn tear_down(&self) -> Result<(), VolumeError> {
        let set = self.clone();
        let work = move || set.take_down();
        self.lane.run("taking down volumes", work).await?
    }

    /// Blocks.
    fn take_down(&self) -> Result<(), VolumeError> {
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
        node_sys::fs::remove_tree(&self.pod_folder).map_err(VolumeError::io("removing", &self.pod_folder))
    }

    /// The pod's folder.
    pub fn pod_folder(&self) -> &Path {
        &self.pod_folder
    }
}

/// Content of a volume.
enum Content {
    Empty(EmptyDirVolumeSource),
    Host(HostPathVolumeSource),
    /// A claim's volume.
    Persistent(persistent::Source),
    /// A claim's volume that is mounted already.
    Mounted,
    /// Content shown before, as the API server is unreachable.
    Before(VolumeError),
    Files {
        payload: Payload,
        in_memory: bool,
        stamp: String,
    },
}

/// Upstream's folder name of a volume type.
fn plugin_folder(volume: &Volume) -> &'static str {
    if volume.empty_dir.is_some() {
        "kubernetes.io~empty-dir"
    } else if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        "kubernetes.io~local-volume"
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

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
    use node_sys::mount::MountError;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A kernel that answers no mount until it is released.
    #[derive(Debug)]
    struct DeadMounter {
        released: Mutex<Receiver<()>>,
    }

    impl Mounter for DeadMounter {
        fn bind(&self, _: &Path, _: &Path) -> Result<(), MountError> {
            Ok(())
        }

        fn tmpfs(&self, _: &Path, _: &TmpfsOptions) -> Result<(), MountError> {
            let _ = self.released.lock().recv();
            Ok(())
        }

        fn unmount(&self, _: &Path) -> Result<(), MountError> {
            Ok(())
        }

        fn below(&self, _: &Path) -> Result<Vec<PathBuf>, MountError> {
            Ok(Vec::new())
        }
    }

    /// One ConfigMap, as long as the API server is there.
    #[derive(Default)]
    struct Api {
        away: AtomicBool,
    }

    #[async_trait]
    impl ObjectSource for Api {
        async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError> {
            if self.away.load(Ordering::Relaxed) {
                return Err(VolumeError::Source("away".into()));
            }
            let data = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
            Ok(Some(Arc::new(ConfigMap {
                data: Some(data),
                ..ConfigMap::default()
            })))
        }

        async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>, VolumeError> {
            Ok(None)
        }

        async fn token(&self, _: &crate::TokenRequest) -> Result<String, VolumeError> {
            Err(VolumeError::Source("none".into()))
        }

        async fn claim(&self, _: &str, _: &str) -> Result<Option<PersistentVolumeClaim>, VolumeError> {
            Ok(None)
        }

        async fn persistent_volume(&self, _: &str) -> Result<Option<PersistentVolume>, VolumeError> {
            Ok(None)
        }
    }

    fn set(folder: &Path, deadline: Duration) -> (VolumeSet, Arc<Api>, Sender<()>) {
        let (release, released) = channel();
        let runtime = Runtime::real();
        let lane = BlockingLane::with_deadline(runtime.clone(), deadline);
        let mounter = Arc::new(DeadMounter {
            released: Mutex::new(released),
        });
        let node = NodeResources::default();
        let folder = folder.join("pod");
        let api = Arc::new(Api::default());
        let set = VolumeSet::new(runtime, lane, folder, mounter, api.clone(), node, 1 << 20);
        (set, api, release)
    }

    fn pod(volume: &serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"spec": {"containers": [], "volumes": [volume]}})).unwrap()
    }

    #[tokio::test]
    async fn volume_on_a_dead_file_system_stops_no_thread_of_the_executor() {
        let folder = tempfile::tempdir().unwrap();
        let (set, _, release) = set(folder.path(), Duration::from_millis(20));
        let pod = pod(&serde_json::json!({"name": "memory", "emptyDir": {"medium": "Memory"}}));
        let (volume, error) = set.set_up(&pod).await.unwrap_err();
        assert_eq!(volume, "memory");
        assert!(matches!(error, VolumeError::Blocking(_)), "{error}");
        assert!(
            set.tear_down().await.is_err(),
            "while it hangs nothing is removed"
        );
        release.send(()).unwrap();
        while set.tear_down().await.is_err() {}
        assert!(!set.pod_folder().try_exists().unwrap());
    }

    #[tokio::test]
    async fn volume_stays_as_it_was_while_the_api_server_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let (set, api, _release) = set(folder.path(), Duration::from_secs(60));
        let pod = pod(&serde_json::json!({"name": "map", "configMap": {"name": "m"}}));
        let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
        let file = set.host_path(volume).join("key");
        api.away.store(true, Ordering::Relaxed);
        assert_eq!(set.set_up(&pod).await.unwrap_err().0, "map", "it never was there");
        api.away.store(false, Ordering::Relaxed);
        assert!(set.set_up(&pod).await.unwrap().is_empty());
        api.away.store(true, Ordering::Relaxed);
        let old = set.set_up(&pod).await.unwrap();
        assert_eq!((old[0].0.as_str(), old.len()), ("map", 1));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "value");
        std::fs::remove_file(file).unwrap();
        set.set_up(&pod).await.unwrap_err();
    }
}
