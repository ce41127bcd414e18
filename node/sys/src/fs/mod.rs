//! Files: atomic replacement, trees that others write, room on a file system, named pipes.

mod replacing;
mod tree;
mod tree_usage;
mod within;

pub use replacing::{write_atomically, write_durably};
pub use tree::{give_to_group, is_of_group, remove_tree};
pub use tree_usage::{DiskUsage, TreeCount};
pub use within::{FolderName, OpenFolder, Within, open_within};

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, mkdirat};

/// Linux's bound of a name.
const NAME_BYTES_MAX: usize = 255;

/// Bytes and inodes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsUsage {
    /// Size.
    pub capacity_bytes: u64,
    /// Sum of used and available bytes: less than the size if blocks are reserved for others.
    pub usable_bytes: u64,
    /// Available to unprivileged writers.
    pub available_bytes: u64,
    /// Free: what is available, and the blocks reserved for others.
    pub free_bytes: u64,
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
        usable_bytes: (stat.blocks().saturating_sub(stat.blocks_free()) + stat.blocks_available()) * unit,
        available_bytes: stat.blocks_available() * unit,
        free_bytes: stat.blocks_free() * unit,
        inodes: stat.files(),
        inodes_free: stat.files_available(),
    })
}

/// Reports whether something in a folder can have this name, which leads to no other folder.
pub fn is_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let is_name = matches!(parts.next(), Some(Component::Normal(first)) if first == name);
    is_name && name.len() <= NAME_BYTES_MAX
}

/// Reads at most this many bytes of a file.
pub fn read_head(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(bytes_max)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reports whether a file has exactly this content; a file of another length is not read.
pub fn holds(path: &Path, content: &[u8]) -> std::io::Result<bool> {
    let length = content.len() as u64;
    // One byte more than expected: a file that grows between the two calls is not taken for equal.
    Ok(std::fs::metadata(path)?.len() == length && read_head(path, length + 1)? == content)
}

/// Reads at most this many bytes of a regular file in a folder that others write, too.
///
/// # Errors
/// It cannot be read, or a link or something that is no file stands in its place: neither is followed or waited for.
pub fn read_regular(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file in a folder that others write, too, to be read.
///
/// # Errors
/// There is none, or a link or something that is no file stands in its place: neither is followed or waited for.
pub fn open_regular(path: &Path) -> std::io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open_to_read(&open(path, flags, Mode::empty())?)
}

/// The same where links are followed, which folders of configurations have.
///
/// # Errors
/// It cannot be read, or what it leads to is no file: it is not waited for.
pub fn read_regular_by_links(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_by_links(path)?
        .take(bytes_max)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file that links may lead to, to be read.
///
/// # Errors
/// There is none, or what the links lead to is no file: it is not waited for.
pub fn open_regular_by_links(path: &Path) -> std::io::Result<File> {
    open_to_read(&open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Sets a path's mode exactly, whatever the umask.
pub fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Mode of folders that only root may read, as upstream's.
const PRIVATE_FOLDER_MODE: u32 = 0o750;

/// Makes a folder that others cannot look into, as are its parents where they are missing; one that is there is left
/// as it is.
pub fn make_private_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER_MODE)
        .create(path)
}

/// The same for a folder that is ours alone: one that others could look into is closed.
pub fn make_own_folder(path: &Path) -> std::io::Result<()> {
    make_private_folder(path)?;
    set_mode(path, PRIVATE_FOLDER_MODE)
}

/// Opens a path from outside below a root, for reference only; folders that are missing are made, with the root's mode.
///
/// The kernel itself refuses to leave the root, whatever links there are and whatever changes them meanwhile: what the
/// descriptor stands for is inside.
pub fn open_below(root: &Path, inside: &Path) -> std::io::Result<OwnedFd> {
    let top = open(
        root,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    match resolve(&top, inside) {
        // Missing folders are the rare case: all else took one call.
        Err(Errno::ENOENT) => {}
        found => return found.map_err(explain),
    }
    let mode = Mode::from_bits_truncate(nix::sys::stat::fstat(&top)?.st_mode);
    let mut prefix = PathBuf::from(".");
    for component in inside.components() {
        let parent = resolve(&top, &prefix).map_err(explain)?;
        prefix.push(component);
        match resolve(&top, &prefix) {
            // Component by component, each resolved from the root: a parent that is replaced by a link
            // meanwhile cannot lead out.
            Err(Errno::ENOENT) => make_folder(&parent, component.as_os_str(), mode)?,
            found => drop(found.map_err(explain)?),
        }
    }
    resolve(&top, inside).map_err(explain)
}

/// Opens a regular file that others have written below a root, to be read.
///
/// Links are followed as if the root were the machine's, by the kernel itself; another file system is not entered.
/// Opening has no effect on what is no regular file, and waits for no process.
///
/// # Errors
/// There is no such file, or it is another thing.
pub fn open_file_below(root: &Path, inside: &Path) -> std::io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = open(root, flags, Mode::empty())?;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_XDEV,
    );
    open_to_read(&openat2(&top, inside, how)?)
}

/// Opens a regular file that was opened for reference only. Opening another thing may wait, or have an effect.
fn open_to_read(found: &OwnedFd) -> std::io::Result<File> {
    let kind = nix::sys::stat::fstat(found)?.st_mode & nix::sys::stat::SFlag::S_IFMT.bits();
    if kind != nix::sys::stat::SFlag::S_IFREG.bits() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    // A container's lease on it would hold up an open that waits.
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

fn resolve(top: &OwnedFd, inside: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(top, inside, how)
}

fn make_folder(parent: &OwnedFd, name: &OsStr, mode: Mode) -> std::io::Result<()> {
    match mkdirat(parent, name, mode) {
        // Another was faster; what it is will be seen.
        Err(Errno::EEXIST) => return Ok(()),
        made => made?,
    }
    // The umask has taken from the mode what it should not.
    Ok(
        fchmodat(parent, name, mode, FchmodatFlags::NoFollowSymlink).or_else(|error| match error {
            // Kernels before 6.6 cannot say "not through a link"; a folder was made, and stays as the umask has it.
            Errno::ENOTSUP => Ok(()),
            other => Err(other),
        })?,
    )
}

fn explain(error: Errno) -> std::io::Error {
    match error {
        Errno::EXDEV | Errno::ELOOP => {
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "path leaves the volume")
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn fs_own_files_are_private() {
        let root = std::env::temp_dir().join(format!("knarr-private-{}", std::process::id()));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (others, own) = (root.join("others"), root.join("others/own"));
        make_private_folder(&others).unwrap();
        assert_eq!(mode(&others), 0o750);
        for folder in [&others, &own] {
            std::fs::create_dir_all(folder).unwrap();
            set_mode(folder, 0o755).unwrap();
        }
        make_private_folder(&others).unwrap();
        make_own_folder(&own).unwrap();
        assert_eq!((mode(&others), mode(&own)), (0o755, 0o750));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn fs_name_leads_to_no_other_folder() {
        for name in ["a", "..a", "a..", "-", "a b", "é", &"x".repeat(NAME_BYTES_MAX)] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for path in [
            "", ".", "..", "/", "/a", "a/", "a/.", "./a", "a/b", "a/..", "../a", &long,
        ] {
            assert!(!is_name(path), "{path}");
        }
    }

    fn place(descriptor: &OwnedFd) -> PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).unwrap()
    }

    #[test]
    fn fs_outside_path_stays_below_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("volume");
        std::fs::create_dir_all(root.join("in")).unwrap();
        set_mode(&root, 0o2771).unwrap();
        symlink("/etc", root.join("away")).unwrap();
        symlink("../..", root.join("in/up")).unwrap();
        symlink("in", root.join("link")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let open = |inside: &str| open_below(&root, Path::new(inside));
        assert_eq!(place(&open("a/b").unwrap()), root.join("a/b"));
        let mode = std::fs::metadata(root.join("a/b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o2771, "as the volume");
        assert_eq!(
            place(&open("link/c").unwrap()),
            root.join("in/c"),
            "a link inside is followed"
        );
        for outside in [
            "../x",
            "away",
            "away/passwd",
            "away/made",
            "in/up",
            "in/up/made",
            "loop",
        ] {
            assert!(open(outside).is_err(), "{outside}");
        }
        for made in [Path::new("/etc/made"), &folder.path().join("made")] {
            assert!(!made.try_exists().unwrap(), "{}", made.display());
        }
    }

    #[test]
    fn fs_file_of_others_is_opened_only_below_root_and_only_if_it_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("volume");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(root.join("in/file"), "inside").unwrap();
        std::fs::write(folder.path().join("secret"), "outside").unwrap();
        symlink("in/file", root.join("link")).unwrap();
        symlink("/in/file", root.join("top")).unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(folder.path().join("secret"), root.join("away")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), Mode::from_bits_truncate(0o600)).unwrap();
        let read = |inside: &str| open_file_below(&root, Path::new(inside)).and_then(std::io::read_to_string);
        for inside in ["in/file", "link", "top", "/in/file", "../in/file"] {
            assert_eq!(read(inside).unwrap(), "inside", "{inside}");
        }
        for nothing in ["up", "away", "pipe", "in", "missing", "/proc/self/environ", "."] {
            read(nothing).unwrap_err();
        }
        symlink(&root, folder.path().join("volume-link")).unwrap();
        open_file_below(&folder.path().join("volume-link"), Path::new("link")).unwrap_err();
    }
}
