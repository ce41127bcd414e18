//! Bytes and inodes of a tree that a pod writes while it is counted: a part at a time, without following links, whatever its
//! width and depth.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use super::tree::own_name;

/// Folders open at once. Deeper ones are not counted.
const DEPTH_MAX: usize = 256;
/// Descriptors of an open folder: its own, and that of the list of its names.
const DESCRIPTORS_OF_FOLDER: usize = 2;
/// Files with several names that are known again; a file beyond counts once for each name.
const LINKS_MAX: usize = 1 << 20;
/// The unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Room that files take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Their inodes.
    pub inodes: u64,
}

impl std::ops::Add for DiskUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

impl std::iter::Sum for DiskUsage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, own| sum + own)
    }
}

/// A count of a tree's blocks and inodes that goes on where it was interrupted. Other file systems in the tree are not
/// counted, and a file with several names counts once. All methods block.
#[derive(Debug)]
pub struct TreeCount {
    device: u64,
    /// Folders on the way to the place of the count.
    way: Vec<OpenFolder>,
    /// Inodes with several names that were counted.
    linked: HashSet<u64>,
    counted: DiskUsage,
    is_deeper: bool,
}

#[derive(Debug)]
struct OpenFolder {
    descriptor: OwnedFd,
    entries: std::fs::ReadDir,
}

impl OpenFolder {
    fn new(descriptor: OwnedFd) -> std::io::Result<Self> {
        let entries = std::fs::read_dir(own_name(&descriptor))?;
        Ok(Self { descriptor, entries })
    }
}

const FOLDER: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

impl TreeCount {
    /// Descriptors of the deepest count.
    pub const MAX_DESCRIPTORS: usize = DEPTH_MAX * DESCRIPTORS_OF_FOLDER;

    /// Begins to count the tree below a folder, itself included.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn begin(root: &Path) -> std::io::Result<Self> {
        let top = open(root, FOLDER, Mode::empty())?;
        let stat = fstat(&top)?;
        let mut count = Self {
            device: stat.st_dev,
            way: Vec::new(),
            linked: HashSet::new(),
            counted: DiskUsage::default(),
            is_deeper: false,
        };
        count.add(&stat);
        count.way.push(OpenFolder::new(top)?);
        Ok(count)
    }

    /// Counts at most so many more names, and returns how many steps that took.
    pub fn go_on(&mut self, names: usize) -> usize {
        for step in 0..names {
            let Some(folder) = self.way.last_mut() else {
                return step;
            };
            match folder.entries.next() {
                None => drop(self.way.pop()),
                // What is gone, or cannot be looked at, is not counted.
                Some(entry) => {
                    let _ = entry.map(|entry| self.look_at(&entry.file_name()));
                }
            }
        }
        names
    }

    /// Reports whether all of the tree was counted.
    pub fn is_through(&self) -> bool {
        self.way.is_empty()
    }

    /// Room that was counted so far: no less is used.
    pub fn counted(&self) -> DiskUsage {
        self.counted
    }

    /// Descriptors that it holds; [`TreeCount::MAX_DESCRIPTORS`] at most.
    pub fn descriptors(&self) -> usize {
        self.way.len() * DESCRIPTORS_OF_FOLDER
    }

    /// Reports whether folders were left out that lie deeper than [`DEPTH_MAX`].
    pub fn is_deeper(&self) -> bool {
        self.is_deeper
    }

    fn look_at(&mut self, name: &OsStr) -> nix::Result<()> {
        let Some(folder) = self.way.last() else {
            return Ok(());
        };
        let stat = fstatat(&folder.descriptor, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if stat.st_dev != self.device {
            return Ok(());
        }
        if stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits() {
            self.add(&stat);
            return self.enter(name);
        }
        // Only files with several names are remembered; memory is bounded by LINKS_MAX and not by the tree.
        if stat.st_nlink == 1 || self.is_new(stat.st_ino) {
            self.add(&stat);
        }
        Ok(())
    }

    fn enter(&mut self, name: &OsStr) -> nix::Result<()> {
        let Some(folder) = self.way.last() else {
            return Ok(());
        };
        if self.way.len() >= DEPTH_MAX {
            self.is_deeper = true;
            return Ok(());
        }
        let inner = openat(&folder.descriptor, name, FOLDER, Mode::empty())?;
        self.way.push(OpenFolder::new(inner).map_err(|_| Errno::EIO)?);
        Ok(())
    }

    fn is_new(&mut self, inode: u64) -> bool {
        self.linked.len() >= LINKS_MAX || self.linked.insert(inode)
    }

    fn add(&mut self, stat: &FileStat) {
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        self.counted = self.counted
            + DiskUsage {
                bytes: blocks.saturating_mul(BLOCK_BYTES),
                inodes: 1,
            };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn whole(root: &Path) -> TreeCount {
        let mut count = TreeCount::begin(root).unwrap();
        while !count.is_through() {
            count.go_on(1);
        }
        count
    }

    fn blocks(path: &Path) -> u64 {
        std::fs::symlink_metadata(path).unwrap().blocks() * BLOCK_BYTES
    }

    #[test]
    fn tree_count_has_each_file_once_and_nothing_outside() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("large"), vec![1; 1 << 20]).unwrap();
        std::fs::write(root.join("a/b/file"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(root.join("a/b/file"), root.join("again")).unwrap();
        symlink(&outside, root.join("away")).unwrap();
        symlink(outside.join("large"), root.join("large")).unwrap();
        let of = ["", "a", "a/b", "a/b/file", "away", "large"];
        let expected = DiskUsage {
            bytes: of.iter().map(|name| blocks(&root.join(name))).sum(),
            inodes: of.len() as u64,
        };
        assert_eq!(whole(&root).counted(), expected);
        assert!(TreeCount::begin(&root.join("missing")).is_err());
        assert!(TreeCount::begin(&root.join("away")).is_err(), "a link");
    }

    #[test]
    fn tree_count_goes_on_where_it_was_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..100 {
            std::fs::write(folder.path().join(format!("{number}")), "x").unwrap();
        }
        let mut count = TreeCount::begin(folder.path()).unwrap();
        assert_eq!(count.go_on(40), 40);
        assert!(!count.is_through());
        assert_eq!(count.counted().inodes, 41, "the folder itself is one");
        count.go_on(60);
        assert!(!count.is_through());
        assert_eq!(count.go_on(10), 1, "the folder itself");
        assert!(count.is_through());
        assert_eq!(count.counted().inodes, 101);
        assert_eq!(count.go_on(10), 0, "it has ended");
    }

    #[test]
    fn tree_count_of_a_deep_tree_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().to_owned();
        for _ in 0..DEPTH_MAX + 20 {
            path.push("d");
        }
        std::fs::create_dir_all(&path).unwrap();
        let count = whole(folder.path());
        assert!(count.is_deeper());
        assert_eq!(count.counted().inodes, DEPTH_MAX as u64 + 1);
        assert!(!whole(&path).is_deeper());
    }
}
