//! Mounts that volumes need of the kernel.

use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::detached_mount::DetachedMount;
use crate::mount_flags::MountFlags;

/// A mount that failed, and where.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct MountError {
    /// Operation.
    pub action: &'static str,
    /// Path of the action.
    pub path: PathBuf,
    /// Cause.
    #[source]
    pub source: std::io::Error,
}

/// Mount options of a memory file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TmpfsOptions {
    /// Size limit; `None` leaves the kernel's default, half of the machine's memory.
    pub size_bytes: Option<u64>,
    /// The mode of its root.
    pub mode: u32,
    /// The group of its root, when not ours.
    pub group: Option<u32>,
}

impl TmpfsOptions {
    fn to_text(self) -> String {
        let mut text = format!("mode={:o}", self.mode);
        if let Some(size) = self.size_bytes {
            text.push_str(&format!(",size={size}"));
        }
        if let Some(group) = self.group {
            text.push_str(&format!(",gid={group}"));
        }
        text
    }
}

/// Mount options of a file system of huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugetlbfsOptions {
    /// Size of a page.
    pub page_bytes: u64,
    /// Bytes of all pages.
    pub size_bytes: u64,
    /// The mode of its root.
    pub mode: u32,
    /// The group of its root, when not ours.
    pub group: Option<u32>,
}

impl HugetlbfsOptions {
    fn to_text(self) -> String {
        let rest = TmpfsOptions {
            size_bytes: Some(self.size_bytes),
            mode: self.mode,
            group: self.group,
        };
        format!("pagesize={},{}", self.page_bytes, rest.to_text())
    }
}

/// The mounts a node component makes.
pub trait Mounter: Send + Sync + std::fmt::Debug {
    /// Makes `source` visible at `target`, which must exist.
    fn bind(&self, source: &Path, target: &Path) -> Result<(), MountError>;
    /// Makes `source` visible at `target` so that a later unmount of what lies below `target` takes nothing off below
    /// `source`. A new mount there has these options from the first moment.
    fn bind_apart(&self, source: &Path, target: &Path, _flags: MountFlags) -> Result<(), MountError> {
        self.bind(source, target)
    }

    /// Makes folders visible at `target`, which must exist, as one: of two files of one path that of the folder named first. It is
    /// read-only, and nothing there is run or is a device. One folder alone is no stack: there must be two.
    fn read_only_layers(&self, folders: &[PathBuf], target: &Path) -> Result<(), MountError> {
        folders
            .first()
            .map_or(Ok(()), |topmost| self.bind(topmost, target))
    }

    /// Mount points that show just what a path does.
    fn showing(&self, path: &Path) -> Result<Vec<PathBuf>, MountError>;

    /// Mounts a memory file system, never swapped out where the kernel can guarantee that.
    fn tmpfs(&self, target: &Path, options: &TmpfsOptions) -> Result<(), MountError>;
    /// Mounts a file system of huge pages; a kernel without them has memory in their place.
    fn hugetlbfs(&self, target: &Path, options: &HugetlbfsOptions) -> Result<(), MountError> {
        let options = TmpfsOptions {
            size_bytes: Some(options.size_bytes),
            mode: options.mode,
            group: options.group,
        };
        self.tmpfs(target, &options)
    }

    /// Unmounts; a path that is not a mount point is fine.
    fn unmount(&self, target: &Path) -> Result<(), MountError>;
    /// The mount points at or below a path, deepest first.
    fn below(&self, prefix: &Path) -> Result<Vec<PathBuf>, MountError>;

    /// Reports whether a path is a mount point.
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

    fn bind_apart(&self, source: &Path, target: &Path, flags: MountFlags) -> Result<(), MountError> {
        let failed = |action: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |source| MountError { action, path, source }
        };
        let tree = DetachedMount::of(source).map_err(failed("copying the mounts of", source))?;
        // Receives mounts from below the source and sends none back; containers may share it among themselves.
        for propagation in [MsFlags::MS_SLAVE, MsFlags::MS_SHARED] {
            tree.propagate(propagation)
                .map_err(failed("setting the propagation of", target))?;
        }
        if !flags.is_empty() {
            tree.restrict(flags)
                .map_err(failed("setting the options of", target))?;
        }
        tree.attach(target).map_err(failed("bind mounting", target))
    }

    fn read_only_layers(&self, folders: &[PathBuf], target: &Path) -> Result<(), MountError> {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::OpenOptionsExt;
        let open = |folder: &PathBuf| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let opened = std::fs::File::options()
                .read(true)
                .custom_flags(flags.bits())
                .open(folder);
            opened.map_err(|source| MountError {
                action: "opening a layer",
                path: folder.clone(),
                source,
            })
        };
        let opened = folders.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        // The kernel takes one page of options: paths of a hundred layers are longer, and may have characters that end one.
        let paths: Vec<String> = opened
            .iter()
            .map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd()))
            .collect();
        let options = format!("lowerdir={}", paths.join(":"));
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let overlay = Some("overlay");
        outcome(
            "mounting layers on",
            target,
            mount(overlay, target, overlay, flags, Some(options.as_str())),
        )
    }

    fn tmpfs(&self, target: &Path, options: &TmpfsOptions) -> Result<(), MountError> {
        let with = |text: &str| {
            let tmpfs = Some("tmpfs");
            mount(tmpfs, target, tmpfs, MsFlags::empty(), Some(text))
        };
        let text = options.to_text();
        let result = match with(&format!("{text},noswap")) {
            // Kernels before 6.4 do not know the word.
            Err(nix::Error::EINVAL) => with(&text),
            result => result,
        };
        outcome("mounting tmpfs on", target, result)
    }

    fn hugetlbfs(&self, target: &Path, options: &HugetlbfsOptions) -> Result<(), MountError> {
        let text = options.to_text();
        let kind = Some("hugetlbfs");
        let result = mount(kind, target, kind, MsFlags::empty(), Some(text.as_str()));
        outcome("mounting hugetlbfs on", target, result)
    }

    fn unmount(&self, target: &Path) -> Result<(), MountError> {
        // Lazy: a volume whose server is gone would block for ever. NOFOLLOW: a pod may have put a link there.
        // EINVAL is "no mount point".
        match umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
            result => outcome("unmounting", target, result),
        }
    }

    fn below(&self, prefix: &Path) -> Result<Vec<PathBuf>, MountError> {
        Ok(mount_points_below(
            &table("listing mounts below", prefix)?,
            prefix,
        ))
    }

    fn showing(&self, path: &Path) -> Result<Vec<PathBuf>, MountError> {
        let action = "listing mounts of";
        let real = std::fs::canonicalize(path).map_err(|source| MountError {
            action,
            path: path.to_path_buf(),
            source,
        })?;
        Ok(mount_points_showing(&table(action, path)?, &real))
    }
}

fn table(action: &'static str, path: &Path) -> Result<String, MountError> {
    std::fs::read_to_string("/proc/thread-self/mountinfo").map_err(|source| MountError {
        action,
        path: path.to_path_buf(),
        source,
    })
}

/// A line of mountinfo.
struct Mounted {
    device: String,
    /// Path in the file system that is at the mount point.
    root: PathBuf,
    point: PathBuf,
}

fn mounted(line: &str) -> Option<Mounted> {
    let mut fields = line.split(' ').skip(2);
    let device = fields.next()?.to_owned();
    let mut path = || Some(PathBuf::from(unescape_octal(fields.next()?)));
    Some(Mounted {
        device,
        root: path()?,
        point: path()?,
    })
}

/// Mount points of a mountinfo table where just that is to be seen which lies at a path; itself is none of them.
fn mount_points_showing(table: &str, path: &Path) -> Vec<PathBuf> {
    let all: Vec<Mounted> = table.lines().filter_map(mounted).collect();
    // Of several at one point the last covers the others.
    let above = all.iter().filter(|found| path.starts_with(&found.point));
    let Some(source) = above.max_by_key(|found| found.point.components().count()) else {
        return Vec::new();
    };
    let inside = path.strip_prefix(&source.point).unwrap_or(path);
    let root = source.root.join(inside);
    let same = |found: &&Mounted| found.device == source.device && found.root == root && found.point != path;
    all.iter().filter(same).map(|found| found.point.clone()).collect()
}

/// Mount points at or below `prefix` in a mountinfo table, deepest first.
pub(crate) fn mount_points_below(table: &str, prefix: &Path) -> Vec<PathBuf> {
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape_octal(field)))
        .filter(|path| path.starts_with(prefix))
        .collect();
    // Descending order of paths has every child before its parent.
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
    fn tmpfs_options_are_written_as_the_kernel_reads_them() {
        let options = TmpfsOptions {
            size_bytes: Some(4096),
            mode: 0o2777,
            group: Some(7),
        };
        assert_eq!(options.to_text(), "mode=2777,size=4096,gid=7");
        let plain = TmpfsOptions {
            mode: 0o1777,
            ..TmpfsOptions::default()
        };
        assert_eq!(plain.to_text(), "mode=1777");
    }

    #[test]
    fn mount_points_show_the_same_by_device_and_root() {
        let table = "1 0 8:1 / / rw - ext4 x rw\n\
                     2 1 8:2 / /mnt rw - ext4 y rw\n\
                     3 1 8:2 /disk /pods/a/v rw - ext4 y rw\n\
                     4 1 8:2 /disk/part /pods/b/v rw - ext4 y rw\n\
                     5 1 8:1 /disk /pods/c/v rw - ext4 x rw\n\
                     6 1 8:2 / /pods/d/v rw - ext4 y rw\n";
        let showing = |path: &str| mount_points_showing(table, Path::new(path));
        assert_eq!(showing("/mnt/disk"), [PathBuf::from("/pods/a/v")]);
        assert_eq!(showing("/mnt"), [PathBuf::from("/pods/d/v")]);
        assert_eq!(showing("/disk"), [PathBuf::from("/pods/c/v")]);
        assert!(showing("/mnt/other").is_empty());
    }

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
