//! The segment log: our own engine, on a disk or in memory.
//!
//! A write passes through [`writer`] (compare, number, encode), [`engine`] (flush, publish) and [`files`] into a
//! [`segment`]; once durable it changes [`crate::live`], the tree that reads use, and [`crate::feed`], the recent changes
//! that cursors follow. [`past_shares`] bounds what each
//! namespace writes of the kept history, [`past`] reads what memory no longer has
//! ([`past_state`] bounds a list), [`previous`] what was before each change. [`upkeep`] expires and compacts,
//! [`checkpointing`] writes [`checkpoint`]s. [`scrub`] reads them again now and then. [`disk_reserve`] lets deletions go on when the
//! disk is full, and [`reclaim`] takes what they free; [`resume`] lets a start go on where the log ends. [`keys`] knows what no key opens.
//! [`backup`] is a revision in one stream, [`restore`] makes a directory of it, [`offline`] reads one without a server. [`salvage`] reads what is whole of a damaged
//! checkpoint. [`recovery`] turns the files back into all of this. [`format`] is what the files look like.
//!
//! Never: a change visible before it is durable, a flush while another runs, a file written in place.

mod active;
mod backup;
mod checkpoint;
mod checkpointing;
mod directory;
mod disk_reserve;
mod engine;
mod files;
mod format;
mod header;
mod keys;
mod offline;
mod options;
mod past;
mod past_shares;
mod past_state;
mod previous;
mod reclaim;
mod recovery;
mod recovery_report;
mod restore;
mod resume;
mod salvage;
mod scrub;
mod seal;
mod seals;
mod segment;
mod snapshot;
mod stuffing;
mod upkeep;
mod verified;
mod wire;
mod writer;

pub use backup::{Backup, BackupFile, write_backup};
pub use offline::{CheckReport, Finding, OfflineState, Salvaged, check};
pub use options::LogOptions;
pub use recovery_report::RecoveryReport;
pub use restore::{RestoreOptions, Restored, restore};
pub use snapshot::{SnapshotContent, SnapshotOptions};

use crate::cursor::FeedCursor;
use crate::encryption::{Encryption, UndecryptedValues};
use crate::error::all_readable;
use crate::live::{self, PastList, Pin};
use crate::{
    Claim, Entry, Event, Key, Lookup, Page, Prefix, RangeOptions, ReadAt, Record, Sample, Statistics,
    Storage, StorageError, Usage, WatchCursor, WatchRequest, Write,
};
use async_trait::async_trait;
use checkpointing::Purpose;
use engine::Engine;
use machinery_meta::Revision;
use machinery_runtime::{MemDisk, Runtime, Scope};
use past_state::ListBound;
use std::fmt;
use std::sync::Arc;

/// Storage on the segment log. Dropping it stops it; [`Storage::close`] also waits.
pub struct LogStorage {
    engine: Arc<Engine>,
    scope: Scope,
}

/// A disk in memory keeps less of the past.
const KEPT_IN_MEMORY: u64 = 128 << 20;

impl LogStorage {
    /// Opens a data directory on the runtime's disk, recovering what is there.
    pub async fn open(
        runtime: &Runtime,
        options: LogOptions,
    ) -> Result<(Self, RecoveryReport), StorageError> {
        let scope = runtime.child_scope();
        let (disk, store) = (runtime.disk(), runtime.random_u64());
        let settings = options.clone();
        let recovered = runtime
            .blocking(move || recovery::recover(disk, &settings, store))
            .await;
        let recovered = recovered.map_err(|ended| StorageError::Unavailable(ended.to_string()))??;
        let recovery::Recovered {
            live,
            feed,
            files,
            appender,
            report,
        } = recovered;
        if let Some(encryption) = &options.encryption {
            encryption.block_no_more();
        }
        for problem in &report.problems {
            tracing::error!(problem, "recovery worked around damage");
        }
        let own = scope.runtime();
        let engine = Arc::new(Engine::new(own.clone(), options, live, feed, files, appender));
        let expiry = Arc::clone(&engine);
        own.keep("storage expiry", move || upkeep::expire(Arc::clone(&expiry)))
            .detach();
        let compaction = Arc::clone(&engine);
        own.keep("storage compaction", move || {
            upkeep::compact_by_age(Arc::clone(&compaction))
        })
        .detach();
        let scrubbing = Arc::clone(&engine);
        own.keep("storage scrub", move || scrub::scrub(Arc::clone(&scrubbing)))
            .detach();
        let room = Arc::clone(&engine);
        own.keep("storage room", move || {
            reclaim::maintain_reserve(Arc::clone(&room))
        })
        .detach();
        let unopened = engine.unopened();
        if !unopened.is_empty() {
            tracing::error!(
                "{}: reads of them fail until --encryption-provider-config has their keys",
                unopened.described("cannot be decrypted")
            );
        }
        if engine.has_stale() {
            reencrypt(&engine);
        }
        Ok((Self { engine, scope }, report))
    }

    /// Opens an empty store in memory.
    pub async fn memory(runtime: &Runtime) -> Result<Self, StorageError> {
        let runtime = runtime.with_disk(Arc::new(MemDisk::new()));
        let options = LogOptions {
            kept_log_bytes: KEPT_IN_MEMORY,
            ..LogOptions::new("/memory")
        };
        Ok(Self::open(&runtime, options).await?.0)
    }

    /// Reads every byte that should be there again; one line for each file that is not what was written.
    pub async fn verify(&self) -> Result<Vec<String>, StorageError> {
        let engine = Arc::clone(&self.engine);
        let verified = self.engine.runtime.blocking(move || {
            let segments = engine
                .files
                .segments()
                .into_iter()
                .map(|segment| segment.verify());
            let checkpoints = engine
                .files
                .checkpoints()
                .into_iter()
                .map(|checkpoint| checkpoint.each(drop));
            segments
                .chain(checkpoints)
                .filter_map(Result::err)
                .map(|error| error.to_string())
                .collect()
        });
        verified
            .await
            .map_err(|ended| StorageError::Unavailable(ended.to_string()))
    }

    /// Counts everything again; one line for each difference from the account that the quota goes by.
    pub fn miscounted(&self) -> Vec<String> {
        let writer = self.engine.writer.lock();
        let live = self.engine.live.read();
        writer.miscounted(&live.root)
    }

    /// Writes a checkpoint now, unless one is being written.
    pub fn checkpoint(&self) {
        if !self
            .engine
            .checkpointing
            .swap(true, std::sync::atomic::Ordering::AcqRel)
        {
            drop(checkpointing::write(&self.engine, Purpose::Recovery));
        }
    }

    /// The state to read at, or what stands in the way.
    fn resolve(&self, at: ReadAt) -> Result<At, StorageError> {
        let now = self.engine.live.read().pin();
        let compacted = self.engine.feed.read().compacted();
        let current = now.revision;
        match at {
            ReadAt::Latest => Ok(At::Held(now)),
            ReadAt::NotBefore(asked) | ReadAt::Exact(asked) if asked > current => {
                Err(StorageError::Future { asked, current })
            }
            ReadAt::NotBefore(_) => Ok(At::Held(now)),
            ReadAt::Exact(asked) if asked == current => Ok(At::Held(now)),
            ReadAt::Exact(asked) if asked < compacted => Err(StorageError::Compacted { asked, compacted }),
            ReadAt::Exact(asked) => {
                let pin = self.engine.pins.lock().get(asked);
                Ok(pin.map_or(At::Past(asked), At::Held))
            }
        }
    }

    /// Put together once for all pages of a list, as far as it holds no more than pins may. Where its state held more, which
    /// others may have brought about, only a short list is: one that was short then.
    async fn past(&self, prefix: &Prefix, at: Revision) -> Result<PastList, StorageError> {
        let floor = {
            let mut pins = self.engine.pins.lock();
            if let Some(kept) = pins.list(at, prefix) {
                return Ok(kept);
            }
            pins.floor()
        };
        let most = self.engine.options.pinned_bytes;
        let bound = if at < floor {
            ListBound::Short(SHORT_ENTRIES, most / SHORT_PART)
        } else {
            ListBound::Held(most)
        };
        let built = self.engine.past_range(prefix.clone(), at, bound).await?;
        let built = built.ok_or_else(|| StorageError::Compacted {
            asked: at,
            compacted: floor.max(at.next()),
        })?;
        let list = PastList::from(built.entries);
        let held = (built.held, built.left);
        self.engine.pins.lock().keep_list(at, prefix, &list, held);
        Ok(list)
    }
}

/// Encrypts values again, in the background.
fn reencrypt(engine: &Arc<Engine>) {
    let task = checkpointing::reencrypt(Arc::clone(engine));
    engine.runtime.spawn("storage encryption", task).detach();
}

/// A list of so many entries, and this part of what pins may hold, is short.
const SHORT_ENTRIES: usize = 10_000;
const SHORT_PART: u64 = 16;

/// A state that can be read.
enum At {
    Held(Pin),
    Past(Revision),
}

#[async_trait]
impl Storage for LogStorage {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError> {
        if at == ReadAt::Latest {
            let (entry, revision) = {
                let live = self.engine.live.read();
                (live.root.get(key.as_str()).cloned(), live.revision)
            };
            let entry = entry.map(|entry| self.engine.readable(&entry)).transpose()?;
            return Ok(Lookup { entry, revision });
        }
        match self.resolve(at)? {
            At::Held(pin) => {
                let entry = pin.root.get(key.as_str());
                Ok(Lookup {
                    entry: entry.map(|entry| self.engine.readable(entry)).transpose()?,
                    revision: pin.revision,
                })
            }
            At::Past(revision) => {
                let (parent, _) = key.as_str().rsplit_once('/').unwrap_or_default();
                let entries = self
                    .past(&Prefix::parse(&format!("{parent}/"))?, revision)
                    .await?;
                let entry = entries.iter().find(|entry| entry.key == *key);
                Ok(Lookup {
                    entry: entry.map(|entry| self.engine.readable(entry)).transpose()?,
                    revision,
                })
            }
        }
    }

    async fn range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        let limit = options.most();
        match self.resolve(options.at)? {
            At::Held(pin) => {
                let (page, remaining) = live::page(&pin.root, prefix, options);
                let page = all_readable(page.iter().map(|entry| self.engine.readable(entry)))?;
                let revision = pin.revision;
                if remaining > 0 {
                    self.engine.pins.lock().pin(pin);
                }
                Ok(Page {
                    entries: page,
                    revision,
                    remaining,
                })
            }
            At::Past(revision) => {
                let all = self.past(prefix, revision).await?;
                let after = options.start_after.as_ref();
                let start = after.map_or(0, |after| all.partition_point(|entry| entry.key <= *after));
                let remaining = (all.len() - start).saturating_sub(limit) as u64;
                let entries = all[start..]
                    .iter()
                    .take(limit)
                    .map(|entry| self.engine.readable(entry));
                Ok(Page {
                    entries: all_readable(entries)?,
                    revision,
                    remaining,
                })
            }
        }
    }

    async fn stored_revision(&self, key: &Key) -> Result<Option<Revision>, StorageError> {
        let live = self.engine.live.read();
        Ok(live.root.get(key.as_str()).map(|entry| entry.revision))
    }

    fn sample(&self, prefix: &Prefix, most: usize) -> Option<Sample> {
        let root = self.engine.live.read().root.clone();
        Some(root.sample(prefix, most))
    }

    fn entries_in_memory(&self, prefix: &Prefix) -> Option<(Vec<Arc<Entry>>, Revision)> {
        let (root, revision) = {
            let live = self.engine.live.read();
            (live.root.clone(), live.revision)
        };
        Some((root.below(prefix, None).cloned().collect(), revision))
    }

    async fn count(&self, prefix: &Prefix) -> Result<u64, StorageError> {
        let root = self.engine.live.read().root.clone();
        Ok(root.count_below(prefix, None))
    }

    async fn commit_for(&self, claim: Claim, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        self.engine.commit(claim, group).await
    }

    fn has_room_for(&self, claim: Claim, group: &[Write]) -> Result<(), StorageError> {
        let mut writer = self.engine.writer.lock();
        let live = self.engine.live.read();
        writer.has_room_for(&live.root, group, claim)
    }

    fn usage(&self) -> Usage {
        self.engine.writer.lock().usage()
    }

    fn is_over_quota(&self) -> bool {
        self.engine.writer.lock().is_over_quota()
    }

    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn WatchCursor>, StorageError> {
        Ok(Box::new(FeedCursor::open(&self.engine, request)?))
    }

    async fn current_revision(&self) -> Result<Revision, StorageError> {
        Ok(self.engine.live.read().revision)
    }

    async fn compacted_revision(&self) -> Result<Revision, StorageError> {
        Ok(self.engine.feed.read().compacted())
    }

    async fn reached(&self, revision: Revision) -> Result<(), StorageError> {
        upkeep::reached(&self.engine, revision).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        upkeep::compact(&self.engine, revision).await
    }

    fn is_stale(&self, entry: &Entry) -> bool {
        let encryption = self.engine.options.encryption.as_ref();
        encryption.is_some_and(|encryption| encryption.current_seal(&entry.key) != entry.seal)
    }

    fn encryption(&self) -> Option<Arc<Encryption>> {
        self.engine.options.encryption.clone()
    }

    fn unopened(&self) -> UndecryptedValues {
        self.engine.unopened()
    }

    fn lost_by(&self, other: &Encryption) -> Result<UndecryptedValues, StorageError> {
        Ok(self.engine.lost_by(other))
    }

    async fn encryption_replaced(&self) {
        reencrypt(&self.engine);
    }

    async fn keys_changed(&self) {
        if self.engine.has_stale() {
            reencrypt(&self.engine);
        }
    }

    fn backup(&self) -> Result<Option<Backup>, StorageError> {
        self.engine.backup().map(Some)
    }

    fn statistics(&self) -> Option<Statistics> {
        let stored_bytes = self.engine.live.read().bytes;
        let (files, room) = (&self.engine.files, self.engine.files.room.gauge());
        let segments = files.segments();
        Some(Statistics {
            full: room.full,
            refused_writes: room.refused,
            reserve_bytes: room.reserve_bytes,
            log_bytes: segments.iter().map(|segment| segment.end()).sum(),
            compacted_revision: self.engine.feed.read().compacted().0,
            refused_for_past: self.engine.writer.lock().refused_for_past(),
            damaged_files: self.engine.scrubbed.damaged(files),
            encryption_behind: self
                .engine
                .encryption_behind
                .load(std::sync::atomic::Ordering::Relaxed),
            scrubbed_bytes: self.engine.scrubbed.bytes(),
            scrubs: self.engine.scrubbed.rounds(),
            ..self.engine.syncs.read(stored_bytes)
        })
    }

    fn recache(&self, key: &Key, revision: Revision, record: Record) -> bool {
        let known = self.engine.live.read().root.get(key.as_str()).cloned();
        let known = known.filter(|known| known.revision == revision);
        known.is_some_and(|known| self.engine.replace(Arc::new(known.with_record(record))))
    }

    async fn close(&self) {
        self.engine.drain().await;
        self.scope.stopped().await;
        self.engine.close_files();
    }
}

impl Drop for LogStorage {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl fmt::Debug for LogStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStorage")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
