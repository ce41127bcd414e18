//! Errors of volumes.

use std::path::{Path, PathBuf};

/// A volume that could not be set up or taken down.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A file operation failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// Operation.
        action: &'static str,
        /// Path of the action.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] node_sys::mount::MountError),
    /// The machine's files did not answer in time.
    #[error(transparent)]
    Blocking(#[from] node_sys::blocking::BlockingError),
    /// An object that must exist does not.
    #[error("{kind} \"{name}\" not found")]
    ObjectNotFound {
        /// Upstream's plural of its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A key that must exist does not.
    #[error("references non-existent {kind} key: {key}")]
    KeyNotFound {
        /// `config` or `secret`.
        kind: &'static str,
        /// The key.
        key: String,
    },
    /// A type of volume that takes no mount options has some.
    #[error("mount options are not supported for this volume type")]
    MountOptions {
        /// The PersistentVolume.
        volume: String,
    },
    /// The volume is not reached from this node.
    #[error("no matching NodeSelectorTerms")]
    NodeAffinity {
        /// The PersistentVolume.
        volume: String,
    },
    /// A driver's volume is not there yet, or its driver refuses.
    #[error("{message}")]
    Csi {
        /// Step that failed.
        step: CsiStep,
        /// The PersistentVolume, or the pod's volume.
        volume: String,
        /// Cause.
        message: String,
    },
    /// The object could not be had.
    #[error("{0}")]
    Source(String),
    /// The pod's volume is invalid or not supported here.
    #[error("{0}")]
    Invalid(String),
}

/// Step of mounting a driver's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsiStep {
    /// Nothing says that the volume is attached to this node.
    ControllerAttach,
    /// The driver is to attach it.
    WaitForAttach,
    /// Once for the node.
    MountDevice,
    /// For the pod.
    SetUp,
}

impl VolumeError {
    /// Text of the event about a pod's volume.
    pub fn event(&self, volume: &str) -> String {
        match self {
            Self::MountOptions { volume } => {
                format!("MountVolume.MountOptionSupport check failed for volume \"{volume}\" : {self}")
            }
            Self::NodeAffinity { volume } => {
                format!("MountVolume.NodeAffinity check failed for volume \"{volume}\" : {self}")
            }
            Self::Csi {
                step,
                volume: own,
                message,
            } => match step {
                // Upstream's text of a pod that has waited for its volumes in vain.
                CsiStep::ControllerAttach => format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[{volume}], \
                     failed to process volumes=[]: {message}"
                ),
                step => format!("MountVolume.{step:?} failed for volume \"{own}\" : {message}"),
            },
            _ => format!("MountVolume.SetUp failed for volume \"{volume}\" : {self}"),
        }
    }

    pub(crate) fn io<'a>(action: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> Self + 'a {
        move |source| Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(step: CsiStep, expected: &str) {
        let error = VolumeError::Csi {
            step,
            volume: "pv".to_owned(),
            message: "no".to_owned(),
        };
        assert_eq!(error.event("data"), expected);
    }

    #[test]
    fn event_of_a_drivers_volume_names_the_step_and_the_volume() {
        check(
            CsiStep::MountDevice,
            "MountVolume.MountDevice failed for volume \"pv\" : no",
        );
        check(CsiStep::SetUp, "MountVolume.SetUp failed for volume \"pv\" : no");
        check(
            CsiStep::ControllerAttach,
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: no",
        );
    }
}
