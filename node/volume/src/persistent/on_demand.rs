//! Volumes of the bundled provisioner `knarr/local-path`: folders that a node makes on demand (decision 0100).
//!
//! The control plane writes the path and the host name of such a volume as the node said them. A node that lies gains nothing
//! by it on another machine: an agent takes a volume of that provisioner for its own folder of that name, or not at all.

use k8s_openapi::api::core::v1::PersistentVolume;
use std::path::{Path, PathBuf};

use crate::VolumeError;

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "knarr/local-path";
/// The node that was asked for the folder; the control plane knows it by itself.
const NODE: &str = "knarr/node";

/// Folders that this node makes for volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDemandVolumes {
    node: String,
    folder: PathBuf,
}

impl OnDemandVolumes {
    /// Volumes made on the node of this name, each a folder of its name below this one.
    pub fn new(node: &str, folder: &Path) -> Self {
        Self {
            node: node.to_owned(),
            folder: folder.to_owned(),
        }
    }

    /// The folder of a volume of that provisioner; `None` of a volume that somebody else made.
    pub(super) fn place(&self, name: &str, volume: &PersistentVolume) -> Result<Option<String>, VolumeError> {
        let annotation = |key: &str| volume.metadata.annotations.as_ref()?.get(key);
        if annotation(PROVISIONED_BY).is_none_or(|by| by != PROVISIONER) {
            return Ok(None);
        }
        let refused = |why: &str| Err(VolumeError::Invalid(format!("PV {name} {why}")));
        if annotation(NODE) != Some(&self.node) {
            return refused("was made on another node");
        }
        let local = volume.spec.as_ref().and_then(|spec| spec.local.as_ref());
        let own = self.folder.join(name);
        match local {
            Some(source) if Path::new(&source.path) == own => Ok(Some(source.path.clone())),
            _ => refused("is not at the place of its name on this node"),
        }
    }
}
