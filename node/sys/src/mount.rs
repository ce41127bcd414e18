//! Mounts that volumes need of the kernel.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A mount that failed, and where.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct MountError {
    /// What was being done.
    pub action: &'static str,
    /// To which path.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: std::io::Error,
}

/// The mounts a node component makes.
pub trait Mounter: Send + Sync + std::fmt::Debug {
    /// Makes `source` visible at `target`, which must exist.
    fn bind(&self, source: &Path, target: &Path) -> Result<(), MountError>;
    /// Mounts a memory file system; `size_bytes` of `None` leaves the kernel's default.
    fn tmpfs(&self, target: &Path, size_bytes: Option<u64>) -> Result<(), MountError>;
    /// Unmounts; a path that is not a mount point is fine.
    fn unmount(&self, target: &Path) -> Result<(), MountError>;
    /// The mount points at or below a path, deepest first.
    fn below(&self, prefix: &Path) -> Result<Vec<PathBuf>, MountError>;

    /// Whether a path is a mount point.
    fn is_mount_point(&self, path: &Path) -> Result<bool, MountError> {
        Ok(self.below(path)?.iter().any(|found| found == path))
    }
}

/// The kernel's mounts.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinuxMounter;

fn outcome(action: &'static str, path: &Path, result: nix::Result<()>) -> Result<(), MountError> {
    result.map_err(|errno| MountError {
        action,
        path: path.to_path_buf(),
        source: errno.into(),
    })
}

impl Mounter for LinuxMounter {
    fn bind(&self, source: &Path, target: &Path) -> Result<(), MountError> {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        outcome(
            "bind mounting",
            target,
            mount(Some(source), target, None::<&str>, flags, None::<&str>),
        )
    }

    fn tmpfs(&self, target: &Path, size_bytes: Option<u64>) -> Result<(), MountError> {
        let options = size_bytes.map(|size| format!("size={size}"));
        let result = mount(
            Some("tmpfs"),
            target,
            Some("tmpfs"),
            MsFlags::empty(),
            options.as_deref(),
        );
        outcome("mounting tmpfs on", target, result)
    }

    fn unmount(&self, target: &Path) -> Result<(), MountError> {
        match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
            result => outcome("unmounting", target, result),
        }
    }

    fn below(&self, prefix: &Path) -> Result<Vec<PathBuf>, MountError> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(|source| MountError {
            action: "listing mounts below",
            path: prefix.to_path_buf(),
            source,
        })?;
        Ok(mount_points_below(&table, prefix))
    }
}

/// Mount points at or below `prefix` in a mountinfo table, deepest first.
pub(crate) fn mount_points_below(table: &str, prefix: &Path) -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape_octal(field)))
        .filter(|path| path.starts_with(prefix))
        .collect();
    points.sort_by(|a, b| b.cmp(a));
    points
}

/// mountinfo writes blanks and backslashes in octal.
fn unescape_octal(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_come_deepest_first_and_unescaped() {
        let table = "1 0 8:1 / / rw - ext4 x rw\n\
                     2 1 0:5 / /data/a rw - tmpfs t rw\n\
                     3 2 0:6 / /data/a/with\\040blank rw - tmpfs t rw\n\
                     4 1 0:7 / /database rw - tmpfs t rw\n";
        let found = mount_points_below(table, Path::new("/data"));
        assert_eq!(
            found,
            [PathBuf::from("/data/a/with blank"), PathBuf::from("/data/a")]
        );
    }
}
