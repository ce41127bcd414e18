//! Trees whose content pods write while we look: no link is followed, no path is read twice, and neither depth nor width
//! costs stack, descriptors or memory.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Gid, UnlinkatFlags, fchownat, unlinkat};

/// Names of a folder that are held at a time.
const NAMES_AT_ONCE: usize = 1024;

/// Removes a folder with all that is in it; one that is not there is fine. Nothing may be mounted below it.
///
/// A folder in the tree is emptied by moving what it holds up to the root of the tree, so that two descriptors reach
/// for any depth.
///
/// # Errors
/// Something cannot be removed; the rest is gone.
pub fn remove_tree(path: &Path) -> std::io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = match open(path, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        opened => opened?,
    };
    let mut removal = Removal {
        top,
        moved: 0,
        first_error: None,
    };
    while removal.empty_once()? {}
    if let Some(error) = removal.first_error {
        return Err(error);
    }
    std::fs::remove_dir(path)
}

struct Removal {
    top: OwnedFd,
    /// Number of names given to folders that were moved up.
    moved: u64,
    first_error: Option<std::io::Error>,
}

impl Removal {
    /// Removes what the root holds, or some of it; says whether that is worth another turn.
    fn empty_once(&mut self) -> std::io::Result<bool> {
        let mut progress = false;
        for name in names(&self.top)? {
            match self.remove(&name) {
                Ok(()) => progress = true,
                Err(error) => {
                    self.first_error.get_or_insert(error);
                }
            }
        }
        // With an error returned, what is left would be tried for ever.
        Ok(progress && self.first_error.is_none())
    }

    fn remove(&mut self, name: &OsStr) -> std::io::Result<()> {
        match unlinkat(&self.top, name, UnlinkatFlags::NoRemoveDir) {
            // Tried as a file first: a stat before would be a second look at a name that a container may
            // exchange. Linux answers EISDIR for folders, POSIX EPERM.
            Err(Errno::EISDIR | Errno::EPERM) => {}
            Err(Errno::ENOENT) => return Ok(()),
            removed => return Ok(removed?),
        }
        loop {
            match unlinkat(&self.top, name, UnlinkatFlags::RemoveDir) {
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.move_up(name)?,
                removed => return Ok(removed?),
            }
        }
    }

    /// Empties a folder of the root, or takes some of what it holds: files go, folders become the root's.
    fn move_up(&mut self, name: &OsStr) -> std::io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let folder = openat(&self.top, name, flags, Mode::empty())?;
        for inner in names(&folder)? {
            match unlinkat(&folder, inner.as_os_str(), UnlinkatFlags::NoRemoveDir) {
                Err(Errno::EISDIR | Errno::EPERM) => self.adopt(&folder, &inner)?,
                removed => removed?,
            }
        }
        Ok(())
    }

    fn adopt(&mut self, folder: &OwnedFd, inner: &OsStr) -> nix::Result<()> {
        loop {
            let own = format!(".removed-{}", self.moved);
            self.moved += 1;
            match renameat(folder, inner, &self.top, own.as_str()) {
                // The tree has that name already.
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                done => return done,
            }
        }
    }
}

/// Some of the names in a folder, from its beginning.
fn names(folder: &OwnedFd) -> std::io::Result<Vec<OsString>> {
    let entries = std::fs::read_dir(own_name(folder))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    names.take(NAMES_AT_ONCE).collect()
}

/// A path by which the kernel finds what a descriptor stands for, and nothing else.
pub(super) fn own_name(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// Gives a tree to a group: group ownership, group read (and write unless read-only), set-gid on folders.
///
/// As fsGroup requires; symbolic links are left alone, their targets belong to the tree or are none of its files. A container
/// may change the tree meanwhile: each path is opened once, without links, and what is changed is what was opened.
///
/// # Errors
/// Something cannot be changed, or lies deeper than a path may be long.
pub fn give_to_group(root: &Path, group: u32, read_only: bool) -> std::io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let top = open(root, flags, Mode::empty())?;
    give_item(&top, group, read_only)?;
    // A folder and the place in it up to which all is done: as many as the tree is deep, which a path bounds.
    let mut pending = vec![Folder::open(PathBuf::from("."), &top)?];
    while let Some(folder) = pending.last_mut() {
        let Some(name) = folder.next()? else {
            pending.pop();
            continue;
        };
        let inside = folder.path.join(name);
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let item = match openat2(&top, &inside, how) {
            // It is a link, or gone by now.
            Err(Errno::ELOOP | Errno::ENOENT) => continue,
            opened => opened?,
        };
        if give_item(&item, group, read_only)? {
            pending.push(Folder::open(inside, &item)?);
        }
    }
    Ok(())
}

/// Reports whether a folder itself is as [`give_to_group`] leaves it.
///
/// # Errors
/// It cannot be looked at.
pub fn is_of_group(folder: &Path, group: u32) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::symlink_metadata(folder)?;
    Ok(found.gid() == group && found.mode() & 0o2770 == 0o2770)
}

/// A folder whose names are read a few at a time.
struct Folder {
    path: PathBuf,
    entries: std::fs::ReadDir,
}

impl Folder {
    fn open(path: PathBuf, item: &OwnedFd) -> std::io::Result<Self> {
        let entries = std::fs::read_dir(own_name(item))?;
        Ok(Self { path, entries })
    }

    fn next(&mut self) -> std::io::Result<Option<OsString>> {
        let entry = self.entries.next().transpose()?;
        Ok(entry.map(|entry| entry.file_name()))
    }
}

/// Says whether it is a folder.
fn give_item(item: &OwnedFd, group: u32, read_only: bool) -> std::io::Result<bool> {
    let stat = fstat(item)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFLNK {
        return Ok(false);
    }
    let is_folder = kind == SFlag::S_IFDIR;
    let mut mode = stat.st_mode & 0o7777;
    mode |= if read_only { 0o440 } else { 0o660 };
    if is_folder {
        mode |= 0o2110;
    }
    fchownat(
        // Owner before mode: chown clears set-gid of executables.
        item.as_fd(),
        "",
        None,
        Some(Gid::from_raw(group)),
        AtFlags::AT_EMPTY_PATH,
    )?;
    std::fs::set_permissions(own_name(item), std::fs::Permissions::from_mode(mode))?;
    Ok(is_folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// A chain of folders deeper than any path may be long, as a pod makes it: from the inside out.
    fn deep(root: &Path, levels: usize) {
        let (chain, next) = (root.join("d"), root.join("n"));
        std::fs::create_dir(&chain).unwrap();
        for _ in 0..levels {
            std::fs::create_dir(&next).unwrap();
            std::fs::rename(&chain, next.join("d")).unwrap();
            std::fs::rename(&next, &chain).unwrap();
        }
    }

    #[test]
    fn tree_is_removed_whatever_its_depth() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("volume");
        std::fs::create_dir(&root).unwrap();
        deep(&root, 5_000);
        // On a stack on which no recursion gets far.
        let stack = std::thread::Builder::new().stack_size(64 * 1024);
        let removed = stack.spawn({
            let root = root.clone();
            move || remove_tree(&root)
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!root.try_exists().unwrap());
        remove_tree(&root).unwrap();
    }

    #[test]
    fn tree_is_removed_whatever_its_width_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("volume"), folder.path().join("other"));
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        std::fs::create_dir_all(root.join("a/b/e")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("kept"), "").unwrap();
        for name in [".removed-0", ".removed-1/full"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join(".removed-2"), "").unwrap();
        for number in 0..3 * NAMES_AT_ONCE {
            std::fs::write(root.join(format!("a/b/{number}")), "").unwrap();
        }
        symlink(&other, root.join("link")).unwrap();
        symlink(&other, root.join("a/b/c/link")).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.try_exists().unwrap());
        assert!(other.join("kept").try_exists().unwrap(), "no link is followed");
        symlink(&other, &root).unwrap();
        assert!(remove_tree(&root).is_err(), "not the root itself, either");
        assert!(other.join("kept").try_exists().unwrap());
    }

    #[test]
    fn tree_is_given_to_a_group_without_what_its_links_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let (root, other) = (folder.path().join("volume"), folder.path().join("other"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "").unwrap();
        std::fs::write(&other, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(root.join("a/b/file"), std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&other, root.join("a/link")).unwrap();
        let own = std::fs::metadata(&root).unwrap().gid();
        give_to_group(&root, own, false).unwrap();
        assert_eq!(mode(&root.join("a/b")) & 0o2770, 0o2770);
        assert_eq!(mode(&root.join("a/b/file")), 0o660);
        assert_eq!(mode(&other), 0o600, "it is not in the tree");
        give_to_group(&root, own, true).unwrap();
        assert_eq!(mode(&root.join("a/b/file")), 0o660, "nothing is taken away");
    }
}
