//! The records of a damaged checkpoint that are whole.
//!
//! The content of a record is its writer's, so bytes are never taken for a record because they look like one: an object's
//! text may hold anything. A record begins where the index says that a block does, or where the one before it ends. One
//! whose bytes are damaged is passed by its length, and what follows counts only if it is whole to the end of the block,
//! in the order of keys. Otherwise the rest of the block is lost.

use super::checkpoint::{Checkpoint, corrupt};
use super::format::{self, Stored};
use super::wire::Reader;
use crate::{Entry, StorageError};
use std::sync::Arc;

/// The length and the checksum in front of a record.
const PREFIX_BYTES: usize = 8;

/// A part of a block.
struct Run {
    entries: Vec<Arc<Entry>>,
    /// Offset of the first damaged record; `None` if all are whole.
    damaged_at: Option<(usize, &'static str)>,
}

impl Checkpoint {
    /// Calls `each` for entries that are whole, in the order of keys, and returns what is not, one error for each place.
    ///
    /// Errors: [`StorageError::Io`].
    pub(super) fn each_whole(
        &self,
        mut each: impl FnMut(Arc<Entry>),
    ) -> Result<Vec<StorageError>, StorageError> {
        let mut lost = Vec::new();
        for at in 0..self.blocks.len() {
            let bytes = self.block_bytes(at)?;
            let start = self.blocks[at].offset;
            let (whole, damage) = self.whole_records(at, &bytes);
            for (offset, found) in damage {
                lost.push(corrupt(&self.path, start + offset as u64, found));
            }
            whole.into_iter().for_each(&mut each);
        }
        Ok(lost)
    }

    fn whole_records(&self, at: usize, bytes: &[u8]) -> (Vec<Arc<Entry>>, Vec<(usize, &'static str)>) {
        let first = &self.blocks[at].first;
        let is_in = |entry: &Arc<Entry>| {
            entry.key >= *first && self.blocks.get(at + 1).is_none_or(|next| entry.key < next.first)
        };
        let (mut entries, mut damage, mut begin) = (Vec::<Arc<Entry>>::new(), Vec::new(), 0);
        loop {
            let run = run(&bytes[begin..]);
            let last = entries.last();
            let follows = run.entries.iter().all(is_in)
                && run.entries.is_sorted_by(|one, next| one.key < next.key)
                && run
                    .entries
                    .first()
                    .zip(last)
                    .is_none_or(|(first, last)| last.key < first.key);
            match run.damaged_at {
                // The front of the block is where the index says; what is behind damage counts as a whole.
                _ if !follows => return (entries, damage),
                Some(_) if begin > 0 => return (entries, damage),
                None => {
                    entries.extend(run.entries);
                    return (entries, damage);
                }
                Some((offset, found)) => {
                    entries.extend(run.entries);
                    damage.push((offset, found));
                    let Some(next) = behind(bytes, offset) else {
                        return (entries, damage);
                    };
                    begin = next;
                }
            }
        }
    }
}

/// Records from the front on, up to the first damage.
fn run(bytes: &[u8]) -> Run {
    let mut reader = Reader::new(bytes);
    let mut run = Run {
        entries: Vec::new(),
        damaged_at: None,
    };
    while !reader.is_empty() {
        let at = bytes.len() - reader.left();
        match format::take_stored(&mut reader) {
            Ok((Stored::Put { entry, .. }, _)) => run.entries.push(entry),
            Ok(_) => {
                run.damaged_at = Some((at, "a checkpoint holds something else than entries"));
                break;
            }
            Err(found) => {
                run.damaged_at = Some((at, found.0));
                break;
            }
        }
    }
    run
}

/// Offset of the record after a damaged one, by its length; `None` if there is none.
fn behind(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let next = at.checked_add(PREFIX_BYTES)?.checked_add(length)?;
    (next < bytes.len()).then_some(next)
}
