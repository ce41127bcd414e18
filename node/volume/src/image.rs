//! image: the files of an image, read-only.
//!
//! The layers are containerd's; they are shown by an overlay without a layer to write to, so that no container can change them, and nothing in
//! it runs or is a device. The mount stays for as long as the pod.

use std::path::{Path, PathBuf};

use node_sys::mount::Mounter;

use crate::VolumeError;

/// Upstream's folder name of the type.
pub(crate) const PLUGIN_FOLDER: &str = "kubernetes.io~image";

/// Shows folders, the topmost first, at `path`. `empty` is made a folder with nothing in it, which an overlay of one layer needs. Blocks.
pub(crate) fn show(
    mounter: &dyn Mounter,
    path: &Path,
    mut folders: Vec<PathBuf>,
    empty: PathBuf,
) -> Result<(), VolumeError> {
    std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
    if mounter.is_mount_point(path)? {
        return Ok(());
    }
    if folders.len() < 2 {
        std::fs::create_dir_all(&empty).map_err(VolumeError::io("making", &empty))?;
        folders.push(empty);
    }
    Ok(mounter.read_only_layers(&folders, path)?)
}
