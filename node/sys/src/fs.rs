//! Files: atomic replacement, ownership of a tree, room on a file system, named pipes.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes and inodes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsUsage {
    /// Size.
    pub capacity_bytes: u64,
    /// Available to unprivileged writers.
    pub available_bytes: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Inodes left.
    pub inodes_free: u64,
}

/// Room on the file system that holds `path`.
pub fn usage(path: &Path) -> std::io::Result<FsUsage> {
    let stat = nix::sys::statvfs::statvfs(path)?;
    let unit = stat.fragment_size();
    Ok(FsUsage {
        capacity_bytes: stat.blocks() * unit,
        available_bytes: stat.blocks_available() * unit,
        inodes: stat.files(),
        inodes_free: stat.files_available(),
    })
}

/// Replaces a file so that a reader sees the old or the new content, never a part.
pub fn write_atomically(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let temporary = folder.join(format!(".{name}.tmp"));
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&temporary)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    std::fs::rename(&temporary, path)
}

/// Gives a tree to a group: group ownership, group read (and write unless read-only), set-gid on folders.
///
/// What fsGroup asks for; symbolic links are left alone, their targets belong to the tree or to nobody here.
pub fn give_to_group(root: &Path, group: u32, read_only: bool) -> std::io::Result<()> {
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata = std::fs::symlink_metadata(&path)?;
        if metadata.is_symlink() {
            continue;
        }
        std::os::unix::fs::chown(&path, None, Some(group))?;
        let mut mode = metadata.permissions().mode() & 0o7777;
        mode |= if read_only { 0o440 } else { 0o660 };
        if metadata.is_dir() {
            mode |= 0o2110;
            for entry in std::fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Sets a path's mode exactly, whatever the umask.
pub fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Makes a named pipe that only we may open.
pub fn make_fifo(path: &Path) -> std::io::Result<()> {
    nix::unistd::mkfifo(
        path,
        nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR,
    )?;
    Ok(())
}

/// Bytes that a tree's files occupy on disk, without crossing into other file systems.
pub fn tree_bytes(root: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::symlink_metadata(root)?.dev();
    let mut total = 0;
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let Ok(metadata) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.dev() != device {
            continue;
        }
        total += metadata.blocks() * 512;
        if metadata.is_dir() {
            let Ok(entries) = std::fs::read_dir(&path) else {
                continue;
            };
            pending.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        }
    }
    Ok(total)
}

/// Joins a path from outside below a root and refuses to leave it, also through symbolic links.
///
/// The result exists: missing folders are made (mode 0750, as upstream does for sub paths).
pub fn resolve_below(root: &Path, inside: &Path) -> std::io::Result<PathBuf> {
    use std::path::Component;
    let refused = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "path leaves the volume");
    let root = root.canonicalize()?;
    let mut current = root.clone();
    for component in inside.components() {
        match component {
            Component::CurDir => continue,
            Component::Normal(name) => current.push(name),
            _ => return Err(refused()),
        }
        if std::fs::symlink_metadata(&current).is_err() {
            std::fs::create_dir(&current)?;
            set_mode(&current, 0o750)?;
        }
        current = current.canonicalize()?;
        if !current.starts_with(&root) {
            return Err(refused());
        }
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_outside_stays_inside() {
        let folder = std::env::temp_dir().join(format!("knarr-fs-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("volume")).unwrap();
        let root = folder.join("volume");
        std::os::unix::fs::symlink("/etc", root.join("escape")).unwrap();
        assert!(
            resolve_below(&root, Path::new("a/b"))
                .unwrap()
                .ends_with("volume/a/b")
        );
        assert!(resolve_below(&root, Path::new("../x")).is_err());
        assert!(resolve_below(&root, Path::new("escape/passwd")).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
