//! emptyDir: a folder of the pod's own, or a memory file system.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use machinery_meta::Quantity;
use node_sys::mount::{Mounter, TmpfsOptions};

use crate::VolumeError;

/// Upstream's name of the folder of these volumes.
pub(crate) const PLUGIN_FOLDER: &str = "kubernetes.io~empty-dir";

/// Path of a volume's content below the pod's folder.
pub fn empty_dir_path(pod_folder: &Path, volume: &str) -> PathBuf {
    pod_folder.join("volumes").join(PLUGIN_FOLDER).join(volume)
}

/// `memory_bytes_max` is what the pod may use of the machine's memory.
pub(crate) fn set_up(
    path: &Path,
    source: &EmptyDirVolumeSource,
    mounter: &dyn Mounter,
    group: Option<u32>,
    memory_bytes_max: u64,
) -> Result<(), VolumeError> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => make_folder(path, group),
        "Memory" => {
            std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
            if mounter.is_mount_point(path)? {
                return Ok(());
            }
            let options = TmpfsOptions {
                size_bytes: Some(size(source, memory_bytes_max)),
                mode: if group.is_some() { 0o2777 } else { 0o777 },
                group,
            };
            Ok(mounter.tmpfs(path, &options)?)
        }
        other => Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
    }
}

/// The limit that is requested, as far as the pod may use so much.
fn size(source: &EmptyDirVolumeSource, memory_bytes_max: u64) -> u64 {
    let limit = source
        .size_limit
        .as_ref()
        .and_then(|limit| limit.0.parse::<Quantity>().ok());
    limit
        .and_then(|limit| u64::try_from(limit.units()).ok())
        .filter(|bytes| (1..=memory_bytes_max).contains(bytes))
        .unwrap_or(memory_bytes_max)
}

/// The folder appears with its mode and group, or not at all; once there it is the pod's, and is left alone.
fn make_folder(path: &Path, group: Option<u32>) -> Result<(), VolumeError> {
    if path.try_exists().map_err(VolumeError::io("looking at", path))? {
        return Ok(());
    }
    let new = unfinished(path);
    std::fs::create_dir_all(&new).map_err(VolumeError::io("making", &new))?;
    node_sys::fs::set_mode(&new, 0o777).map_err(VolumeError::io("setting the mode of", &new))?;
    if let Some(group) = group {
        node_sys::fs::give_to_group(&new, group, false)
            .map_err(VolumeError::io("giving to its group", &new))?;
    }
    std::fs::rename(&new, path).map_err(VolumeError::io("renaming", &new))
}

/// A path beside it, under a name that no volume can have.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn empty_dir_begun_by_an_agent_that_was_killed_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volume");
        std::fs::create_dir(unfinished(&path)).unwrap();
        make_folder(&path, None).unwrap();
        assert_eq!(mode(&path), 0o777);
        node_sys::fs::set_mode(&path, 0o700).unwrap();
        make_folder(&path, None).unwrap();
        assert_eq!(mode(&path), 0o700, "as the pod has made it");
    }

    #[test]
    fn empty_dir_in_memory_is_no_larger_than_what_the_pod_may_use() {
        let limited = |limit: Option<&str>| EmptyDirVolumeSource {
            size_limit: limit
                .map(|limit| k8s_openapi::apimachinery::pkg::api::resource::Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        };
        for (limit, expected) in [
            (None, 1000),
            (Some("0"), 1000),
            (Some("10"), 10),
            (Some("1Gi"), 1000),
        ] {
            assert_eq!(size(&limited(limit), 1000), expected, "{limit:?}");
        }
    }
}
