//! The last record of a machine's kill that was reported, on disk: an agent that starts again reports it no second time, and those of the
//! meantime once. Upstream's kubelet reports all of the boot at each start.

use std::path::{Path, PathBuf};

/// A longer file is not ours.
const FILE_BYTES_MAX: u64 = 256;

/// A place in the log of one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    path: PathBuf,
    boot_id: String,
    /// Number of the record; `None` before the first.
    sequence: Option<u64>,
}

impl Seen {
    /// Reads the place. Blocks.
    pub(super) fn load(folder: &Path, boot_id: String) -> Self {
        let path = folder.join("oom-watcher");
        let content = node_sys::fs::read_regular(&path, FILE_BYTES_MAX).unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        let known = text.trim().split_once(' ');
        let sequence = known
            .filter(|(boot, _)| *boot == boot_id)
            .and_then(|(_, sequence)| sequence.parse().ok());
        Self {
            path,
            boot_id,
            sequence,
        }
    }

    /// Reports whether a record comes after the place.
    pub(super) fn is_new(&self, sequence: u64) -> bool {
        self.sequence.is_none_or(|seen| sequence > seen)
    }

    /// Goes on to a record.
    pub(super) fn advance(&mut self, sequence: u64) {
        self.sequence = Some(sequence);
    }

    /// Writes the place. Blocks.
    pub(super) fn save(&self) -> std::io::Result<()> {
        let sequence = self.sequence.unwrap_or_default();
        let text = format!("{} {sequence}\n", self.boot_id);
        node_sys::fs::write_atomically(&self.path, text.as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_record_is_known_in_its_boot_alone() {
        let folder = tempfile::tempdir().unwrap();
        let load = |boot: &str| Seen::load(folder.path(), boot.to_owned());
        let mut seen = load("one");
        assert!(seen.is_new(0));
        seen.advance(7);
        seen.save().unwrap();
        assert_eq!([7, 8].map(|sequence| load("one").is_new(sequence)), [false, true]);
        assert!(load("two").is_new(3), "numbers begin again at a boot");
        std::fs::write(folder.path().join("oom-watcher"), "nonsense").unwrap();
        assert!(load("one").is_new(3));
    }
}
