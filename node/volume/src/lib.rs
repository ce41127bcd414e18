//! Volume types of a pod: what is put where before a container starts, and kept up to date after.
//!
//! A volume has a host path below the pod's folder ([`VolumeSet::host_path`]); [`VolumeSet::set_up`]
//! makes its content appear there and may be called again at any time: what has not changed is not
//! written, a failure stays with its volume, and volumes that no container has (`used`) are passed over.
//! [`VolumeSet::tear_down`] unmounts and removes everything below the pod's folder.
//!
//! | type | file | what it is |
//! |---|---|---|
//! | emptyDir | `empty_dir` | a folder, or a memory file system |
//! | hostPath | `host_path` | a path of the machine, checked or made |
//! | persistentVolumeClaim, ephemeral | `persistent` | the claim's hostPath or local volume, mounted below the pod's folder |
//! | csi, and claims of such volumes | `csi` | a driver's volume, which it shows and takes away itself |
//! | image | `image` | the layers of an image, mounted read-only when a container that has it starts |
//! | configMap, secret, downwardAPI, projected | `payload` | files from API objects, tokens, trust anchors and certificates, as many as there is `room` for, replaced as a whole by [`atomic_writer`] |
//! | a part of any of them (`subPath`) | `sub_path` | opened without leaving the volume, and bound from what was opened |
//!
//! A pod with more volumes, mounts or tokens than `bounds` has is refused. Objects come through [`ObjectSource`], drivers' volumes through [`CsiVolumes`]; nothing here talks to the API server, and nothing here
//! decides whether a pod may start.

pub mod atomic_writer;
mod bounds;
mod csi;
pub mod downward;
mod empty_dir;
mod error;
mod host_path;
mod image;
pub mod payload;
mod persistent;
mod room;
mod set;
mod sub_path;
mod used;

pub use csi::{CSI_PLUGIN_FOLDER, CsiShown, CsiSource, CsiVolume, CsiVolumes};
pub use empty_dir::empty_dir_path;
pub use error::{CsiStep, VolumeError};
pub use payload::{Credentials, ObjectSource, ProjectionPlace, TokenRequest, TrustAnchors};
pub use persistent::ThisNode;
pub use set::{Failure, NodeResources, Notice, SetUp, VolumeSet};
