//! The volumes of one pod.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, Pod, Volume};
use machinery_meta::Quantity;
use machinery_runtime::Runtime;
use node_sys::blocking::BlockingLane;
use node_sys::mount::{Mounter, TmpfsOptions};
use parking_lot::Mutex;

use crate::atomic_writer::Payload;
use crate::csi::{self, CsiSource, CsiVolume, CsiVolumes, Kept};
use crate::empty_dir::HugePages;
use crate::payload::{self, ObjectSource, PayloadContext};
use crate::room::Room;
use crate::{
    ThisNode, VolumeError, atomic_writer, bounds, empty_dir, host_path, image, persistent, sub_path, used,
};

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

/// Warning about a volume that is mounted nevertheless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Reason of the event.
    pub reason: &'static str,
    /// Its text.
    pub message: String,
}

/// Outcome of setting up the volumes of a pod.
#[derive(Debug)]
pub struct SetUp {
    /// Volumes that could not be set up or brought up to date.
    pub failures: Vec<Failure>,
    /// Warnings about others.
    pub notices: Vec<Notice>,
    /// All volumes are there: with their newest content, or with what they have shown before.
    pub are_mounted: bool,
}

impl SetUp {
    fn refused(failure: Failure) -> Self {
        Self {
            failures: vec![failure],
            notices: Vec::new(),
            are_mounted: false,
        }
    }
}

/// Sets up and takes down the volumes of one pod below its folder.
#[derive(Clone)]
pub struct VolumeSet {
    runtime: Runtime,
    lane: BlockingLane,
    pod_folder: PathBuf,
    mounter: Arc<dyn Mounter>,
    objects: Arc<dyn ObjectSource>,
    drivers: Arc<dyn CsiVolumes>,
    node: NodeResources,
    this_node: ThisNode,
    memory_bytes_max: u64,
    /// Volumes that drivers show, by the pod's names of them.
    shown: Arc<Mutex<BTreeMap<String, Kept>>>,
    /// hostPath volumes that were set up: what has passed its check is not checked again.
    checked: Arc<Mutex<HashSet<String>>>,
    /// Supplemental groups that claims' volumes bring, by volume.
    groups: Arc<Mutex<BTreeMap<String, i64>>>,
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
    #[expect(clippy::too_many_arguments, reason = "each is of another part of the agent")]
    pub fn new(
        runtime: Runtime,
        lane: BlockingLane,
        pod_folder: PathBuf,
        mounter: Arc<dyn Mounter>,
        objects: Arc<dyn ObjectSource>,
        drivers: Arc<dyn CsiVolumes>,
        node: NodeResources,
        this_node: ThisNode,
        memory_bytes_max: u64,
    ) -> Self {
        Self {
            runtime,
            lane,
            pod_folder,
            mounter,
            objects,
            drivers,
            node,
            this_node,
            memory_bytes_max,
            shown: Arc::default(),
            checked: Arc::default(),
            groups: Arc::default(),
        }
    }

    /// Path of a volume's content; for a hostPath, the machine's own path.
    pub fn host_path(&self, volume: &Volume) -> PathBuf {
        if let Some(source) = &volume.host_path {
            return PathBuf::from(&source.path);
        }
        if let Some(kept) = self.shown.lock().get(&volume.name) {
            return kept.shown.path.clone();
        }
        self.pod_folder
            .join("volumes")
            .join(plugin_folder(volume))
            .join(&volume.name)
    }

    /// Makes the content of each volume appear that a container mounts, or brings it up to date. A failure stays with its
    /// volume: the others are set up, and what a volume has shown before stays.
    pub async fn set_up(&self, pod: &Pod) -> SetUp {
        if let Err(failure) = bounds::check(pod) {
            return SetUp::refused(failure);
        }
        let mut all = Vec::new();
        let mut room = Room::of_pod();
        for volume in used::volumes(pod) {
            let left = room.clone();
            let content = self.content(pod, volume, &mut room).await;
            let content = content.unwrap_or_else(|error| {
                room = left;
                Content::Failed(error)
            });
            all.push((volume.clone(), content));
        }
        let mut outcome = SetUp {
            failures: Vec::new(),
            notices: Vec::new(),
            are_mounted: true,
        };
        let Some((first, _)) = all.first() else {
            return outcome;
        };
        let current = Arc::new(Mutex::new(first.name.clone()));
        let (set, group, begun) = (self.clone(), fs_group(pod), current.clone());
        let work = move || {
            for (volume, content) in all {
                begun.lock().clone_from(&volume.name);
                let path = set.host_path(&volume);
                match set.show(&volume, &path, content, group) {
                    Ok(notice) => outcome.notices.extend(notice),
                    Err(error) => {
                        outcome.are_mounted &= set.shows(&volume, &path);
                        outcome.failures.push((volume.name, error));
                    }
                }
            }
            outcome
        };
        let done = self.lane.run("setting up volumes", work).await;
        done.unwrap_or_else(|error| SetUp::refused((current.lock().clone(), error.into())))
    }

    /// Reads the content of a volume from its sources outside of this machine's disk.
    async fn content(&self, pod: &Pod, volume: &Volume, room: &mut Room) -> Result<Content, VolumeError> {
        if let Some(source) = &volume.empty_dir {
            return Ok(Content::Empty(
                source.clone(),
                empty_dir::huge_pages(pod, source)?,
            ));
        }
        if let Some(source) = &volume.host_path {
            return Ok(match self.checked.lock().contains(&volume.name) {
                true => Content::Mounted,
                false => Content::Host(source.clone()),
            });
        }
        // Its image is pulled, and mounted, when a container starts that has it.
        if volume.image.is_some() {
            return Ok(Content::Mounted);
        }
        if let Some(kept) = self.kept(volume) {
            return self.published(kept).await;
        }
        if let Some(source) = &volume.csi {
            let wanted = CsiVolume {
                pod: Arc::new(pod.clone()),
                volume: volume.name.clone(),
                source: CsiSource::Inline(Box::new(source.clone())),
                is_read_only: source.read_only == Some(true),
                fs_group: fs_group(pod),
            };
            return self.publish(Arc::new(wanted)).await;
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
        let look = move || {
            let mounted = mounter.is_mount_point(&path)?;
            Ok::<_, VolumeError>(mounted.then(|| persistent::group_of_mounted(&path)))
        };
        if let Some(group) = self.lane.run("looking for a mount", look).await?? {
            self.bring_group(&volume.name, group);
            return Ok(Content::Mounted);
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = self.objects.claim(namespace, &claim.name).await?;
        let name = persistent::bound_volume(pod, claim, found.as_ref())?;
        let behind = self.objects.persistent_volume(name).await?;
        let found = found.as_ref().expect("a claim that is bound was found");
        let behind = persistent::checked(name, found, behind.as_ref(), &self.this_node)?;
        if behind.spec.as_ref().is_none_or(|spec| spec.csi.is_none()) {
            return persistent::source(name, claim, behind, &self.this_node).map(Content::Persistent);
        }
        self.bring_group(&volume.name, persistent::group(behind));
        let wanted = CsiVolume {
            pod: Arc::new(pod.clone()),
            volume: volume.name.clone(),
            source: CsiSource::Persistent(Box::new(behind.clone())),
            is_read_only: claim.is_read_only,
            fs_group: fs_group(pod),
        };
        self.publish(Arc::new(wanted)).await
    }

    fn kept(&self, volume: &Volume) -> Option<Kept> {
        self.shown.lock().get(&volume.name).cloned()
    }

    /// A volume that its driver has shown stays so; the driver may want to be called again.
    async fn published(&self, kept: Kept) -> Result<Content, VolumeError> {
        match kept.shown.again_at {
            Some(at) if at <= self.runtime.now() => self.publish(kept.wanted).await,
            _ => Ok(Content::Mounted),
        }
    }

    async fn publish(&self, wanted: Arc<CsiVolume>) -> Result<Content, VolumeError> {
        let shown = self.drivers.publish(&wanted, &self.lane).await?;
        let volume = wanted.volume.clone();
        self.shown.lock().insert(volume, Kept { wanted, shown });
        Ok(Content::Mounted)
    }

    /// Time at which the first of the pod's drivers wants to be called again: [`VolumeSet::set_up`] does it.
    pub fn publish_again_at(&self) -> Option<Timestamp> {
        self.shown
            .lock()
            .values()
            .filter_map(|kept| kept.shown.again_at)
            .min()
    }

    /// Reports whether a volume that could not be brought up to date shows what it has shown before. Blocks.
    fn shows(&self, volume: &Volume, path: &Path) -> bool {
        self.shown.lock().contains_key(&volume.name)
            || (is_of_objects(volume) && atomic_writer::is_whole(path))
    }

    fn bring_group(&self, volume: &str, group: Option<i64>) {
        let mut groups = self.groups.lock();
        match group {
            Some(group) => groups.insert(volume.to_owned(), group),
            None => groups.remove(volume),
        };
    }

    /// Supplemental groups that the pod's claims bring to its containers, once they are mounted.
    pub fn groups(&self) -> BTreeSet<i64> {
        self.groups.lock().values().copied().collect()
    }

    /// Blocks.
    fn show(
        &self,
        volume: &Volume,
        path: &Path,
        content: Content,
        group: Option<u32>,
    ) -> Result<Option<Notice>, VolumeError> {
        let (payload, in_memory, stamp) = match content {
            Content::Empty(source, pages) => {
                let mounter = self.mounter.as_ref();
                match pages {
                    Some(pages) => empty_dir::set_up_huge_pages(path, &pages, mounter, group)?,
                    None => empty_dir::set_up(path, &source, mounter, group, self.memory_bytes_max)?,
                }
                return Ok(None);
            }
            Content::Host(source) => {
                host_path::set_up(&source)?;
                self.checked.lock().insert(volume.name.clone());
                return Ok(None);
            }
            Content::Failed(why) => return Err(why),
            Content::Mounted => return Ok(None),
            Content::Persistent(source) => {
                let shown = persistent::set_up(self.mounter.as_ref(), path, &source, group)?;
                self.bring_group(&volume.name, shown.group);
                return Ok(shown.notice);
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
        atomic_writer::write(path, &payload, &stamp, group).map(|_| None)
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
        let shown = sub_path::show(self.mounter.as_ref(), &self.host_path(volume), inside, &target);
        match shown {
            // Nothing can be made in an image.
            Err(VolumeError::Io { source, .. })
                if volume.image.is_some() && source.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
            {
                Err(VolumeError::Invalid(format!(
                    "the image has no file or folder {inside:?}"
                )))
            }
            shown => shown.map(|()| target),
        }
    }

    /// Reports whether the image of a volume is mounted. Blocks.
    pub fn shows_image(&self, volume: &Volume) -> Result<bool, VolumeError> {
        Ok(self.mounter.is_mount_point(&self.host_path(volume))?)
    }

    /// Mounts the folders of an image, the topmost first, as the volume. Blocks.
    pub fn show_image(&self, volume: &Volume, folders: Vec<PathBuf>) -> Result<(), VolumeError> {
        let empty = self.pod_folder.join("empty-layer");
        image::show(self.mounter.as_ref(), &self.host_path(volume), folders, empty)
    }

    /// Reports whether the pod has or had volumes of images, by its folder. Blocks.
    pub fn had_images(&self) -> bool {
        let folder = self.pod_folder.join("volumes").join(image::PLUGIN_FOLDER);
        folder.try_exists().unwrap_or(true)
    }

    /// Makes drivers take their volumes away, then unmounts and removes everything below the pod's folder, the folder included.
    pub async fn tear_down(&self) -> Result<(), VolumeError> {
        self.drivers.unpublish(&self.pod_folder, &self.lane).await?;
        self.shown.lock().clear();
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
    Empty(EmptyDirVolumeSource, Option<HugePages>),
    Host(HostPathVolumeSource),
    /// A claim's volume.
    Persistent(persistent::Source),
    /// It is there already, and has nothing that would change.
    Mounted,
    /// Nothing new to show.
    Failed(VolumeError),
    Files {
        payload: Payload,
        in_memory: bool,
        stamp: String,
    },
}

/// Upstream's folder name of a volume type.
fn plugin_folder(volume: &Volume) -> &'static str {
    if volume.empty_dir.is_some() {
        empty_dir::PLUGIN_FOLDER
    } else if volume.image.is_some() {
        image::PLUGIN_FOLDER
    } else if volume.csi.is_some() {
        csi::CSI_PLUGIN_FOLDER
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

/// Reports whether a volume has its files from API objects.
fn is_of_objects(volume: &Volume) -> bool {
    let sources = [
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.downward_api.is_some(),
        volume.projected.is_some(),
    ];
    sources.contains(&true)
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}
