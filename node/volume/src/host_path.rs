//! hostPath: a path of the machine, after the check its type requires.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use crate::VolumeError;

pub(crate) fn set_up(source: &HostPathVolumeSource) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let found = std::fs::metadata(&path).ok();
    let failed = |what: &str| {
        Err(VolumeError::Invalid(format!(
            "hostPath type check failed: {} is not {what}",
            path.display()
        )))
    };
    let fits =
        |check: fn(&std::fs::FileType) -> bool| found.as_ref().is_some_and(|data| check(&data.file_type()));
    match kind {
        "" => {}
        "DirectoryOrCreate" if found.is_none() => make_folder(&path)?,
        "FileOrCreate" if found.is_none() => make_file(&path)?,
        "Directory" | "DirectoryOrCreate" if !fits(std::fs::FileType::is_dir) => {
            return failed("a directory");
        }
        "File" | "FileOrCreate" if !fits(std::fs::FileType::is_file) => return failed("a file"),
        "Socket" if !fits(std::fs::FileType::is_socket) => return failed("a socket"),
        "CharDevice" if !fits(std::fs::FileType::is_char_device) => return failed("a character device"),
        "BlockDevice" if !fits(std::fs::FileType::is_block_device) => return failed("a block device"),
        "Directory" | "DirectoryOrCreate" | "File" | "FileOrCreate" | "Socket" | "CharDevice"
        | "BlockDevice" => {}
        other => return Err(VolumeError::Invalid(format!("{other} is an invalid volume type"))),
    }
    Ok(path)
}

/// Makes a folder where nothing is.
pub(crate) fn make_if_missing(path: &Path) -> Result<(), VolumeError> {
    match path.try_exists().map_err(VolumeError::io("looking for", path))? {
        true => Ok(()),
        false => make_folder(path),
    }
}

fn make_folder(path: &Path) -> Result<(), VolumeError> {
    std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
    node_sys::fs::set_mode(path, 0o755).map_err(VolumeError::io("setting the mode of", path))
}

fn make_file(path: &Path) -> Result<(), VolumeError> {
    std::fs::File::create(path).map_err(VolumeError::io("making", path))?;
    node_sys::fs::set_mode(path, 0o644).map_err(VolumeError::io("setting the mode of", path))
}
