//! This node as PersistentVolumes know it: its labels, and the folders that it makes on demand (decisions 0100 and 0102).
//!
//! A pod may be bound to any node past the scheduler, so that the node itself asks whether a volume is reached from it.
//!
//! The control plane writes path and host name of a volume of the bundled provisioner `knarr/local-path` as a node sent them. A
//! node that lies gains nothing by it on another machine: an agent takes such a volume for its own folder of that name, or not
//! at all.

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use machinery_semantics::node_affinity::NodeFacts;
use parking_lot::Mutex;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::VolumeError;

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "knarr/local-path";
/// The node of which the folder was requested; the control plane knows it by itself.
const NODE: &str = "knarr/node";

/// The node that mounts volumes.
#[derive(Clone)]
pub struct ThisNode {
    name: String,
    folder: PathBuf,
    object: Arc<Mutex<Arc<Node>>>,
}

impl fmt::Debug for ThisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThisNode")
            .field("name", &self.name)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl ThisNode {
    /// The node of this name, as it was last seen; volumes that are made on it on demand are folders of their names below
    /// `folder`.
    pub fn new(name: &str, folder: &Path, object: Arc<Mutex<Arc<Node>>>) -> Self {
        Self {
            name: name.to_owned(),
            folder: folder.to_owned(),
            object,
        }
    }

    /// Checks that the volume is reached from this node (upstream's `CheckNodeAffinity`).
    pub(super) fn check_affinity(&self, name: &str, volume: &PersistentVolume) -> Result<(), VolumeError> {
        let spec = volume.spec.as_ref();
        let required = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        let node = Arc::clone(&self.object.lock());
        let labels = node.metadata.labels.as_ref();
        let facts = NodeFacts {
            name: &self.name,
            labels: |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str),
        };
        if required.is_none_or(|required| facts.matches(&required.node_selector_terms)) {
            return Ok(());
        }
        let volume = name.to_owned();
        Err(VolumeError::NodeAffinity { volume })
    }

    /// The folder of a volume of that provisioner; `None` of a volume that another made.
    pub(super) fn place(&self, name: &str, volume: &PersistentVolume) -> Result<Option<String>, VolumeError> {
        let annotation = |key: &str| volume.metadata.annotations.as_ref()?.get(key);
        if annotation(PROVISIONED_BY).is_none_or(|by| by != PROVISIONER) {
            return Ok(None);
        }
        let refused = |why: &str| Err(VolumeError::Invalid(format!("PV {name} {why}")));
        if annotation(NODE) != Some(&self.name) {
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
