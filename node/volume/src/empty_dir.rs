//! emptyDir: a folder of the pod's own, or a memory file system.

use std::path::Path;

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use machinery_meta::Quantity;
use node_sys::mount::Mounter;

use crate::VolumeError;

pub(crate) fn set_up(
    path: &Path,
    source: &EmptyDirVolumeSource,
    mounter: &dyn Mounter,
    group: Option<u32>,
) -> Result<(), VolumeError> {
    // An agent that starts again must not touch what the pod has done to its folder meanwhile.
    let fresh = !path.try_exists().map_err(VolumeError::io("looking at", path))?;
    std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
    let memory = match source.medium.as_deref().unwrap_or_default() {
        "" => false,
        "Memory" => true,
        other => return Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
    };
    let mounted = memory && !mounter.is_mount_point(path)?;
    if mounted {
        let limit = source
            .size_limit
            .as_ref()
            .and_then(|limit| limit.0.parse::<Quantity>().ok());
        let bytes = limit
            .and_then(|limit| u64::try_from(limit.units()).ok())
            .filter(|bytes| *bytes > 0);
        mounter.tmpfs(path, bytes)?;
    }
    if fresh || mounted {
        node_sys::fs::set_mode(path, 0o777).map_err(VolumeError::io("setting the mode of", path))?;
        if let Some(group) = group {
            node_sys::fs::give_to_group(path, group, false)
                .map_err(VolumeError::io("giving to its group", path))?;
        }
    }
    Ok(())
}
