//! The state that the files hold: the newest checkpoint that can be read, and the log behind it.

use crate::backends::log::active::Active;
use crate::backends::log::checkpoint::Checkpoint;
use crate::backends::log::directory::Found;
use crate::backends::log::format::Stored;
use crate::backends::log::options::LogOptions;
use crate::backends::log::recovery_report::RecoveryReport;
use crate::backends::log::seal;
use crate::backends::log::segment::{Batch, Segment};
use crate::encryption::Encryption;
use crate::feed::Feed;
use crate::live::Live;
use crate::{Event, StorageError};
use machinery_meta::Revision;
use std::sync::Arc;
use std::time::Duration;

/// The state that the files hold.
pub(crate) struct Loaded {
    pub(crate) live: Live,
    pub(crate) feed: Feed,
    /// The last batch of the log.
    pub(super) last: Option<Batch>,
    pub(super) next_batch: u64,
}

/// Reads the newest checkpoint and the log behind it.
pub(crate) fn load(
    found: &mut Found,
    active: &Active,
    options: &LogOptions,
    report: &mut RecoveryReport,
) -> Result<Loaded, StorageError> {
    found.has_newest(active)?;
    let mut replay = Replay::from_checkpoint(found, options, report)?;
    let next_batch = replay.segments(&found.segments, report)?;
    // A torn end is normal, one before a batch that was acknowledged is loss.
    found.is_whole(active, next_batch)?;
    Ok(replay.finish(found, next_batch, report))
}

/// Settings of a look: no history is kept, nothing is opened.
pub(crate) fn for_reading() -> LogOptions {
    LogOptions {
        history_bytes: 0,
        ..LogOptions::new("")
    }
}

/// The whole part of a damaged directory.
pub(crate) struct Whole {
    pub(crate) live: Live,
    pub(crate) ended: Option<StorageError>,
    pub(crate) lost: Vec<StorageError>,
}

/// The same of a damaged log, up to the first damage. Where a checkpoint is damaged, and those before it with the log do not
/// reach as far, it is read record by record.
pub(crate) fn load_what_is_whole(
    found: &mut Found,
    active: &Active,
    report: &mut RecoveryReport,
) -> Result<Whole, StorageError> {
    let checkpoints = found.checkpoints.clone();
    let mut replay = Replay::from_checkpoint(found, &for_reading(), report)?;
    let read = replay.segments(&found.segments, report);
    let read = read.and_then(|next_batch| found.is_whole(active, next_batch));
    let ended = found.has_newest(active).and(read).err();
    let whole = Whole {
        live: replay.finish(found, 0, report).live,
        ended,
        lost: Vec::new(),
    };
    let newest = checkpoints.last();
    match newest.filter(|newest| whole.ended.is_some() && newest.revision() > whole.live.revision) {
        Some(newest) => salvage(newest, whole, found, report),
        None => Ok(whole),
    }
}

/// A damaged checkpoint and the log behind it.
fn salvage(
    checkpoint: &Checkpoint,
    before: Whole,
    found: &Found,
    report: &mut RecoveryReport,
) -> Result<Whole, StorageError> {
    let mut live = Live {
        revision: checkpoint.revision(),
        batch: checkpoint.header.batch,
        ..Live::default()
    };
    let lost = checkpoint.each_whole(|entry| {
        live.bytes += entry.record.len() as u64;
        live.root.insert(entry.key.clone(), entry);
    })?;
    if live.root.len() == 0 {
        return Ok(before);
    }
    report.checkpoint = Some(checkpoint.revision());
    let mut replay = Replay {
        feed: Feed::new(live.revision, Revision(checkpoint.header.compacted), 0),
        live,
        last: None,
        encryption: None,
        broken: None,
        misses: true,
    };
    let read = replay.segments(&found.segments, report);
    Ok(Whole {
        live: replay.live,
        ended: read.err().or(before.ended),
        lost,
    })
}

/// The newest checkpoint that can be read, and its floor. Damaged ones are reported and left out; whether the log makes
/// up for them is seen when it is replayed.
fn load_checkpoint(
    checkpoints: &mut Vec<Arc<Checkpoint>>,
    encryption: Option<&Encryption>,
    report: &mut RecoveryReport,
) -> Result<(Live, Revision), StorageError> {
    while let Some(checkpoint) = checkpoints.last() {
        let mut live = Live {
            revision: checkpoint.revision(),
            batch: checkpoint.header.batch,
            ..Live::default()
        };
        let read = checkpoint.each(|entry| {
            let entry = seal::opened_if_possible(encryption, entry);
            checkpoint.seals.note(encryption, &entry);
            live.bytes += entry.record.len() as u64;
            live.root.insert(entry.key.clone(), entry);
        });
        match read {
            Ok(()) => {
                report.checkpoint = Some(checkpoint.revision());
                return Ok((live, Revision(checkpoint.header.compacted)));
            }
            Err(error @ StorageError::Corrupt { .. }) => report.problems.push(error.to_string()),
            Err(error) => return Err(error),
        }
        // An older checkpoint with the log behind it gives the same state, if that log is still there.
        checkpoints.pop();
    }
    Ok((Live::default(), Revision::ZERO))
}

/// Applies the log behind the checkpoint.
struct Replay {
    live: Live,
    feed: Feed,
    /// The last batch of the log.
    last: Option<Batch>,
    encryption: Option<Arc<Encryption>>,
    broken: Option<(u64, &'static str)>,
    /// Objects of the checkpoint may be missing.
    misses: bool,
}

impl Replay {
    fn from_checkpoint(
        found: &mut Found,
        options: &LogOptions,
        report: &mut RecoveryReport,
    ) -> Result<Self, StorageError> {
        let encryption = options.encryption.clone();
        let (live, compacted) = load_checkpoint(&mut found.checkpoints, encryption.as_deref(), report)?;
        Ok(Self {
            feed: Feed::new(live.revision, compacted, options.history_bytes),
            encryption,
            live,
            last: None,
            broken: None,
            misses: false,
        })
    }

    fn finish(self, found: &Found, next_batch: u64, report: &mut RecoveryReport) -> Loaded {
        let Self { live, feed, last, .. } = self;
        report.revision = live.revision;
        report.compacted = feed.compacted();
        report.objects = live.root.len();
        report.problems.extend(found.begins_late(feed.compacted()));
        Loaded {
            live,
            feed,
            last,
            next_batch,
        }
    }

    /// Reads the segments that are needed; the number of the batch that comes next.
    fn segments(
        &mut self,
        segments: &[Arc<Segment>],
        report: &mut RecoveryReport,
    ) -> Result<u64, StorageError> {
        let mut next = self.live.batch + 1;
        let Some(last) = segments.last() else {
            if self.live.batch == 0 && report.problems.is_empty() {
                return Ok(next);
            }
            // A checkpoint alone would look like a store whose last changes never were.
            return Err(missing("the log is missing"));
        };
        let first = segments.partition_point(|segment| segment.header.first_batch <= next);
        let first = first
            .checked_sub(1)
            .ok_or_else(|| missing("the log behind the checkpoint is missing"))?;
        for (at, segment) in segments.iter().enumerate() {
            let until = segments.get(at + 1).map(|following| following.header.first_batch);
            if at < first {
                segment.read_later(until.unwrap_or(next));
                continue;
            }
            let end = segment.scan(until, |batch| self.batch(batch))?;
            if let Some((offset, found)) = self.broken {
                return Err(segment.corrupt(offset, found));
            }
            next = next.max(end.next_batch);
            report.torn_bytes += end.torn_bytes;
        }
        debug_assert!(last.header.first_batch <= next, "segments are read in order");
        report.replayed = self.live.revision.0 - report.checkpoint.unwrap_or_default().0;
        Ok(next)
    }

    fn batch(&mut self, mut batch: Batch) {
        // The first segment may begin before the checkpoint, and a start repeats the last batch.
        if batch.header.batch > self.live.batch {
            for (stored, _) in std::mem::take(&mut batch.records) {
                if let Err(found) = self.stored(stored) {
                    self.broken.get_or_insert((batch.offset, found));
                    return;
                }
            }
            self.live.batch = batch.header.batch;
        }
        self.last = Some(batch);
    }

    fn stored(&mut self, stored: Stored) -> Result<(), &'static str> {
        let (revision, key, entry, expected) = match stored {
            Stored::Compact { floor } => {
                self.feed.compact(floor);
                return Ok(());
            }
            Stored::Put { entry, previous } => {
                let entry = seal::opened_if_possible(self.encryption.as_deref(), entry);
                (entry.revision, entry.key.clone(), Some(entry), previous)
            }
            Stored::Delete {
                key,
                revision,
                previous,
            } => (revision, key, None, previous),
        };
        let previous = self.live.root.get(key.as_str()).cloned();
        let found = previous
            .as_ref()
            .map_or(Revision::ZERO, |previous| previous.revision);
        // Each change names the revision that it replaced: damage that checksums do not show (a lost segment)
        // breaks the chain.
        let follows = found == expected || self.misses && previous.is_none();
        if revision != self.live.revision.next() || !follows {
            return Err("a change does not follow the one before it");
        }
        let event = Event {
            revision,
            key,
            entry,
            previous,
        };
        self.live.apply(&event);
        self.feed.push(Arc::new(event), Duration::ZERO, &mut Vec::new());
        Ok(())
    }
}

fn missing(found: &str) -> StorageError {
    StorageError::Corrupt {
        file: "data directory".to_owned(),
        offset: 0,
        found: found.to_owned(),
    }
}
