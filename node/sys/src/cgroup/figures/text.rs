//! Formats of the files of groups.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Pressure;
use crate::fs::read_head;

/// Bytes of a file that are read: the longest, `cgroup.procs`, has eight for each process.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A folder of files, perhaps of a controller that is not mounted.
#[derive(Debug, Clone, Default)]
pub(super) struct Files(Option<PathBuf>);

impl Files {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self(folder)
    }

    /// Text of a file, `None` where there is none.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let bytes = read_head(&self.0.as_ref()?.join(name), FILE_BYTES_MAX).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// A file with one number. `max` and a negative number are none.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.trim().parse().ok()
    }

    /// A limit in bytes: a number beyond all memory is none (version 1).
    pub(super) fn limit(&self, name: &str) -> Option<u64> {
        // The kernel's "no limit" depends on the page size (`PAGE_COUNTER_MAX`), so anything beyond real memory
        // counts, as in cAdvisor.
        const NONE_FROM: u64 = 1 << 62;
        self.number(name).filter(|limit| *limit < NONE_FROM)
    }

    /// A file of `name number` lines.
    pub(super) fn keyed(&self, name: &str) -> Keyed {
        Keyed(self.text(name).unwrap_or_default())
    }

    /// Processes of the group.
    pub(super) fn processes(&self) -> Vec<i32> {
        let text = self.text("cgroup.procs").unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// A file of version 2 with the time in which tasks waited.
    pub(super) fn pressure(&self, name: &str) -> Pressure {
        let text = self.text(name).unwrap_or_default();
        let total = |kind: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let (_, values) = lines.find(|(own, _)| *own == kind)?;
            let total = values.split(' ').find_map(|value| value.strip_prefix("total="));
            total?.parse().ok()
        };
        Pressure {
            some_us: total("some"),
            full_us: total("full"),
        }
    }

    /// Time at which the folder was made, in seconds of Unix time: a file of it that is written rarely says so better
    /// than the folder, which changes with every group below.
    pub(super) fn made_at_seconds(&self, witness: &str) -> Option<i64> {
        let folder = self.0.as_ref()?;
        let changed = |path: &Path| path.metadata().ok().map(|data| data.mtime());
        changed(folder)
            .into_iter()
            .chain(changed(&folder.join(witness)))
            .min()
    }
}

/// `name number` lines.
#[derive(Debug, Default)]
pub(super) struct Keyed(String);

impl Keyed {
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(own, _)| *own == name)?;
        value.trim().parse().ok()
    }
}

/// Major and minor number of a device, written `8:0`.
pub(super) fn device(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
