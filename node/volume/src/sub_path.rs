//! subPath: a part of a volume, shown to one container.

use std::path::{Path, PathBuf};

use crate::VolumeError;

/// The host path of `sub_path` inside a volume, made as a folder where it is missing.
///
/// The result has no symbolic link left in it, and lies inside the volume.
pub fn resolve(volume: &Path, sub_path: &str) -> Result<PathBuf, VolumeError> {
    let inside = Path::new(sub_path);
    if inside.is_absolute() {
        return Err(VolumeError::Invalid(format!(
            "error SubPath `{sub_path}` must not be an absolute path"
        )));
    }
    if inside
        .components()
        .any(|part| part == std::path::Component::ParentDir)
    {
        return Err(VolumeError::Invalid(format!(
            "unable to provision SubPath `{sub_path}`: must not contain '..'"
        )));
    }
    node_sys::fs::resolve_below(volume, inside).map_err(VolumeError::io("resolving a sub path of", volume))
}
