//! subPath: a part of a volume, shown to one container.
//!
//! The part is opened without leaving the volume, and what was opened is bound to a place that no container can reach:
//! between the look and the mount no container can put something else there.

use std::os::fd::AsRawFd;
use std::path::Path;

use node_sys::mount::Mounter;

use crate::VolumeError;

/// Shows `sub_path` of a volume at `target`; a part that is missing is made as a folder.
pub(crate) fn show(
    mounter: &dyn Mounter,
    volume: &Path,
    sub_path: &str,
    target: &Path,
) -> Result<(), VolumeError> {
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
    let opened = node_sys::fs::open_below(volume, inside)
        .map_err(VolumeError::io("resolving a sub path of", volume))?;
    let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
    // An earlier container of this name may have been shown what has since been replaced.
    mounter.unmount(target)?;
    make_target(Path::new(&source), target).map_err(VolumeError::io("making", target))?;
    Ok(mounter.bind(Path::new(&source), target)?)
}

/// A mount covers a folder by a folder and anything else by a file.
fn make_target(source: &Path, target: &Path) -> std::io::Result<()> {
    let is_folder = std::fs::metadata(source)?.is_dir();
    match std::fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() == is_folder => return Ok(()),
        Ok(found) if found.is_dir() => std::fs::remove_dir(target)?,
        Ok(_) => std::fs::remove_file(target)?,
        Err(_) => {}
    }
    if is_folder {
        return std::fs::create_dir_all(target);
    }
    target.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::File::create(target).map(drop)
}
