//! Disks of the machine, and the file systems on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::fs::{FsUsage, usage};

/// File systems that are looked at.
const FILE_SYSTEMS_MAX: usize = 64;
const SECTOR_BYTES: u64 = 512;

/// Reads and writes of a disk since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskFigures {
    /// Completed, merged, sectors of 512 bytes, and milliseconds of reads.
    pub reads: [u64; 4],
    /// The same of writes.
    pub writes: [u64; 4],
    /// Operations under way.
    pub in_progress: u64,
    /// Milliseconds in which any was under way.
    pub busy_milliseconds: u64,
    /// The same, each millisecond as many times as operations were under way.
    pub weighted_milliseconds: u64,
}

impl DiskFigures {
    /// Bytes read and written.
    pub fn bytes(&self) -> (u64, u64) {
        (
            self.reads[2].saturating_mul(SECTOR_BYTES),
            self.writes[2].saturating_mul(SECTOR_BYTES),
        )
    }
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of its device.
    pub device: (u64, u64),
    /// Place of the mount.
    pub path: PathBuf,
    /// Its kind, such as `ext4`.
    pub kind: String,
    /// Its source, such as `/dev/sda1`.
    pub source: String,
}

/// A file system on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// The device, such as `/dev/sda1`.
    pub source: String,
    /// Major and minor number of the device.
    pub device: (u64, u64),
    /// Room.
    pub room: FsUsage,
}

/// Disks and partitions by major and minor number.
pub fn disks() -> BTreeMap<(u64, u64), DiskFigures> {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    text.lines().filter_map(disk).collect()
}

/// Numbers of the device, its name, and at least eleven figures.
fn disk(line: &str) -> Option<((u64, u64), DiskFigures)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    let four = |at: usize| Some([number(at)?, number(at + 1)?, number(at + 2)?, number(at + 3)?]);
    let figures = DiskFigures {
        reads: four(3)?,
        writes: four(7)?,
        in_progress: number(11)?,
        busy_milliseconds: number(12)?,
        weighted_milliseconds: number(13)?,
    };
    Some(((number(0)?, number(1)?), figures))
}

/// Name of a block device below `/dev`.
pub fn block_device_name((major, minor): (u64, u64)) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(format!("/dev/{name}"))
}

/// Mounts that this process sees.
pub fn mounts() -> Vec<Mount> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

/// From a line of `mountinfo` (proc(5)).
fn mount(line: &str) -> Option<Mount> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(2);
    let (major, minor) = mount.next()?.split_once(':')?;
    let path = mount.nth(1)?;
    let mut kind = kind.split(' ');
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        path: PathBuf::from(unescaped(path)),
        kind: kind.next()?.to_owned(),
        source: unescaped(kind.next()?),
    })
}

/// The kernel writes blanks and backslashes of names as octal numbers.
fn unescaped(text: &str) -> String {
    let plain = text.replace("\\040", " ").replace("\\011", "\t");
    plain.replace("\\012", "\n").replace("\\134", "\\")
}

/// File systems on disks, each once: a network's is left out, for it may not answer. Blocks.
pub fn file_systems(mounts: &[Mount]) -> Vec<FileSystem> {
    let mut seen = BTreeSet::new();
    let on_disks = mounts.iter().filter(|mount| is_on_disk(mount));
    let once = on_disks.filter(|mount| seen.insert(mount.device));
    let read = |mount: &Mount| {
        Some(FileSystem {
            room: usage(Path::new(&mount.path)).ok()?,
            source: mount.source.clone(),
            device: mount.device,
        })
    };
    once.take(FILE_SYSTEMS_MAX).filter_map(read).collect()
}

fn is_on_disk(mount: &Mount) -> bool {
    let kind = mount.kind.as_str();
    let known = kind.starts_with("ext") || ["xfs", "btrfs", "zfs"].contains(&kind);
    known && mount.source.starts_with("/dev/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_mounts_are_read_from_the_kernels_tables() {
        let (device, found) = disk(" 254       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17").unwrap();
        assert_eq!(device, (254, 0));
        assert_eq!((found.reads, found.writes), ([1, 2, 3, 4], [5, 6, 7, 8]));
        assert_eq!((found.in_progress, found.weighted_milliseconds), (9, 11));
        assert_eq!(found.bytes(), (3 * 512, 7 * 512));
        assert_eq!(disk("1 2 short 3"), None);
        let line = "27 1 254:0 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/vda rw,discard";
        let expected = Mount {
            device: (254, 0),
            path: PathBuf::from("/mnt/a b"),
            kind: "ext4".to_owned(),
            source: "/dev/vda".to_owned(),
        };
        assert_eq!(mount(line), Some(expected));
    }

    #[test]
    fn file_systems_on_disks_are_counted_once() {
        let mount = |kind: &str, source: &str, minor| Mount {
            device: (8, minor),
            path: PathBuf::from("/"),
            kind: kind.to_owned(),
            source: source.to_owned(),
        };
        let mounts = [
            mount("tmpfs", "tmpfs", 1),
            mount("ext4", "/dev/sda2", 2),
            mount("ext4", "/dev/sda2", 2),
            mount("nfs", "server:/path", 3),
        ];
        let found = file_systems(&mounts);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].source.as_str(), found[0].device), ("/dev/sda2", (8, 2)));
        assert!(found[0].room.capacity_bytes > 0);
    }
}
