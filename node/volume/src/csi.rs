//! csi: volumes that a driver shows at a path below the pod's folder. [`CsiVolumes`] speaks with the drivers; this crate says
//! which volume a pod is to have.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{CSIVolumeSource, PersistentVolume, Pod};
use node_sys::blocking::BlockingLane;

use crate::VolumeError;

/// Upstream's folder name of the type.
pub const CSI_PLUGIN_FOLDER: &str = "kubernetes.io~csi";

/// A volume of a driver, for one pod.
#[derive(Debug, Clone)]
pub struct CsiVolume {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Name of the pod's volume.
    pub volume: String,
    /// Source of the volume.
    pub source: CsiSource,
    /// The pod only reads.
    pub is_read_only: bool,
    /// Group that the files are to belong to.
    pub fs_group: Option<u32>,
}

/// Source of a volume of a driver.
#[derive(Debug, Clone)]
pub enum CsiSource {
    /// A PersistentVolume.
    Persistent(Box<PersistentVolume>),
    /// The pod itself, with which the volume comes and goes.
    Inline(Box<CSIVolumeSource>),
}

impl CsiVolume {
    /// Name of the PersistentVolume; the pod's own name of a volume that is the pod's.
    pub fn name(&self) -> &str {
        match &self.source {
            CsiSource::Persistent(volume) => volume.metadata.name.as_deref().unwrap_or_default(),
            CsiSource::Inline(_) => &self.volume,
        }
    }
}

/// A volume that its driver shows to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiShown {
    /// Place on this node.
    pub path: PathBuf,
    /// Time at which the driver wants to be called again, where it does.
    pub again_at: Option<Timestamp>,
}

/// Drivers' volumes of a node.
#[async_trait]
pub trait CsiVolumes: Send + Sync {
    /// Shows a volume to a pod; one that is shown already, again. Files are touched in the pod's lane.
    ///
    /// # Errors
    /// The volume cannot be shown now.
    async fn publish(&self, volume: &CsiVolume, lane: &BlockingLane) -> Result<CsiShown, VolumeError>;

    /// Takes all volumes of drivers away from the pod with this folder.
    ///
    /// # Errors
    /// Some are left.
    async fn unpublish(&self, pod_folder: &Path, lane: &BlockingLane) -> Result<(), VolumeError>;
}

/// A volume that is shown, as the pod's volumes keep it.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) wanted: Arc<CsiVolume>,
    pub(crate) shown: CsiShown,
}
