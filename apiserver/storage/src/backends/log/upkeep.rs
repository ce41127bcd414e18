//! Upkeep of the log by itself: expiry and compaction. Each sleeps until there is something to do.

use super::engine::{Engine, kept_log_bytes};
use crate::live::Live;
use crate::{Claim, Entry, Event, Key, Prefix, StorageError, WatchFilter, Write};
use machinery_meta::Revision;
use machinery_runtime::{Runtime, TaskEnded};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Expiry of entries by the runtime's monotonic clock: the wall clock may be set forward or back at any time.
#[derive(Debug)]
pub(super) struct Expiries {
    order: Mutex<Order>,
    /// An entry written before this start lives no longer than this, whatever the wall clock was then.
    longest: Duration,
    /// Notified when the first of them changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Order {
    ends: BTreeSet<(Duration, Key)>,
    by_key: HashMap<Key, (Duration, Revision)>,
}

/// Changes dropped from memory under one hold of the lock.
pub(super) const TRIM_STEP: usize = 256;
/// Entries deleted at once when their time has come.
const EXPIRE_AT_ONCE: usize = 64;

impl Order {
    fn insert(&mut self, key: &Key, end: Duration, revision: Revision) {
        self.remove(key);
        self.ends.insert((end, key.clone()));
        self.by_key.insert(key.clone(), (end, revision));
    }

    fn remove(&mut self, key: &Key) {
        if let Some((end, _)) = self.by_key.remove(key) {
            self.ends.remove(&(end, key.clone()));
        }
    }
}

impl Expiries {
    pub(super) fn of(live: &Live, runtime: &Runtime, longest: Duration) -> Self {
        let expiries = Self {
            order: Mutex::default(),
            longest,
            changed: Notify::new(),
        };
        let (wall, now) = (expiries.wall(runtime), runtime.monotonic());
        let mut order = expiries.order.lock();
        for entry in live.root.values() {
            if let Some(seconds) = entry.expires {
                order.insert(&entry.key, expiries.end(seconds, wall, now), entry.revision);
            }
        }
        drop(order);
        expiries
    }

    /// Seconds since 1970, by the wall clock.
    pub(super) fn wall(&self, runtime: &Runtime) -> u64 {
        u64::try_from(runtime.now().as_second()).unwrap_or(0)
    }

    fn end(&self, seconds: u64, wall: u64, now: Duration) -> Duration {
        let left = Duration::from_secs(seconds.saturating_sub(wall));
        // By the monotonic clock from here on, and bounded: a wall clock that jumps delays no expiry beyond the
        // longest TTL.
        now + left.min(self.longest)
    }

    pub(super) fn changed(&self, event: &Event, runtime: &Runtime) {
        let ends = |entry: &Option<Arc<Entry>>| entry.as_ref().and_then(|entry| entry.expires);
        let (old, new) = (ends(&event.previous), ends(&event.entry));
        if old.is_none() && new.is_none() {
            return;
        }
        let mut order = self.order.lock();
        let Some(seconds) = new else {
            return order.remove(&event.key);
        };
        let end = self.end(seconds, self.wall(runtime), runtime.monotonic());
        order.insert(&event.key, end, event.revision);
        // Only a new first one shortens the sleep; a woken task for each lease renewal would cost more than the
        // renewal.
        if order.ends.first().is_some_and(|(first, _)| *first == end) {
            self.changed.notify_one();
        }
    }

    fn first(&self) -> Option<Duration> {
        self.order.lock().ends.first().map(|(end, _)| *end)
    }

    /// Keys whose time has come, each with the change that must still be its last.
    fn due(&self, now: Duration) -> Vec<(Key, Revision)> {
        let order = self.order.lock();
        let due = order.ends.iter().take_while(|(end, _)| *end <= now);
        let revision = |key: &Key| order.by_key.get(key).map(|(_, revision)| *revision);
        due.take(EXPIRE_AT_ONCE)
            .filter_map(|(_, key)| Some((key.clone(), revision(key)?)))
            .collect()
    }
}

/// Deletes entries when their time has come. Ends with its scope.
pub(super) async fn expire(engine: Arc<Engine>) {
    loop {
        let Some(first) = engine.expiries.first() else {
            engine.expiries.changed.notified().await;
            continue;
        };
        let now = engine.runtime.monotonic();
        if first > now {
            tokio::select! {
                biased;
                () = engine.expiries.changed.notified() => {}
                () = engine.runtime.sleep(first - now) => {}
            }
            continue;
        }
        let due = engine.expiries.due(now).into_iter();
        let deletions =
            // With the revision: a lease that was renewed after `due` was read is a conflict, and stays.
            due.map(|(key, revision)| engine.commit(Claim::System, vec![Write::delete(key, revision)]));
        let mut refused = false;
        for result in futures::future::join_all(deletions).await {
            match result {
                // A write meanwhile has decided otherwise.
                Ok(_) | Err(StorageError::Conflict { .. }) => {}
                Err(StorageError::NoSpace) => refused = true,
                Err(error) => {
                    tracing::debug!(%error, "expiry stopped");
                    return;
                }
            }
        }
        if refused {
            engine.runtime.sleep(engine.options.space_retry).await;
        }
    }
}

/// Keeps changes for the retention time and not much longer. Ends with its scope.
pub(super) async fn compact_by_age(engine: Arc<Engine>) {
    if engine.options.retention.is_zero() {
        return;
    }
    loop {
        let noted = engine.live.read().revision;
        if noted <= engine.feed.read().compacted() {
            // Nothing to give up: sleep until something changes, without a timer.
            if reached(&engine, noted.next()).await.is_err() {
                return;
            }
            continue;
        }
        let floor = tokio::select! {
            biased;
            () = engine.runtime.sleep(engine.options.retention) => noted,
            checkpoint = too_much_kept(&engine) => checkpoint,
        };
        match compact(&engine, floor).await {
            Ok(()) | Err(StorageError::NoSpace) => {}
            Err(error) => {
                tracing::debug!(%error, "compaction stopped");
                return;
            }
        }
    }
}

/// Waits until more changes are kept than there is room for, although each namespace has its share, and returns the newest checkpoint, which a start begins with.
/// Tenants with many writes must not fill the disk with what was, nor take the memory that a disk in memory is.
async fn too_much_kept(engine: &Arc<Engine>) -> Revision {
    let files = &engine.files;
    let most = kept_log_bytes(&engine.options, files);
    loop {
        // Before the look, so that no end in between is missed. What can go is behind a checkpoint.
        let ended = engine.checkpointed.notified();
        // A full disk has its own way to room.
        let compacted = engine.feed.read().compacted();
        if !files.room.is_full()
            && let Some(newest) = files.history_ends()
            && newest > compacted
            && files.bytes_after(compacted).is_ok_and(|bytes| bytes > most)
        {
            tracing::info!(
                "more was written than is kept of the past: changes before the last checkpoint are compacted"
            );
            return newest;
        }
        ended.await;
    }
}

/// Waits until a revision is published.
pub(super) async fn reached(engine: &Arc<Engine>, revision: Revision) -> Result<(), StorageError> {
    let everything = WatchFilter::prefix(Prefix::parse("/")?);
    loop {
        let current = engine.feed.read().current();
        if current >= revision {
            return Ok(());
        }
        let request = crate::WatchRequest {
            interests: vec![everything.clone()],
            after: current,
        };
        let cursor = crate::cursor::FeedCursor::open(engine, request);
        let mut cursor: Box<dyn crate::WatchCursor> = match cursor {
            Ok(cursor) => Box::new(cursor),
            Err(StorageError::Compacted { .. }) => continue,
            Err(error) => return Err(error),
        };
        match cursor.next_batch(1).await {
            Ok(_) | Err(StorageError::Compacted { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Compacts what is older than a revision: writes the floor durably, then drops the changes step by step.
pub(super) async fn compact(engine: &Arc<Engine>, floor: Revision) -> Result<(), StorageError> {
    let (current, compacted) = {
        let feed = engine.feed.read();
        (feed.current(), feed.compacted())
    };
    if floor > current {
        return Err(StorageError::Future {
            asked: floor,
            current,
        });
    }
    // Compactions of several callers race; the floor never falls.
    if floor <= compacted {
        return Ok(());
    }
    // Durable before anything is dropped: after a crash no reader may be served a revision that was refused
    // before.
    engine.raise_floor(floor).await?;
    while engine.feed.write().trim(TRIM_STEP) {
        tokio::task::yield_now().await;
    }
    // A statement of its own, so that they are dropped without the lock: a former state may hold many entries.
    let released = engine.pins.lock().release(floor);
    drop(released);
    let own = Arc::clone(engine);
    let pruned = engine.runtime.blocking(move || own.files.prune(floor)).await;
    match pruned {
        Ok(Err(error)) => tracing::warn!(%error, "cannot remove old files of the log"),
        Err(TaskEnded::Panicked(message)) => engine.panicked("pruning", &message),
        Ok(Ok(())) | Err(TaskEnded::Cancelled) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use bytes::Bytes;
    use machinery_fuzz::held;
    use machinery_meta::{ObjectHeader, ObjectKey, Uid};
    use machinery_runtime::Simulation;

    const FIELDS: [&str; 19] = [
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.resourceVersion",
        "involvedObject.uid",
        "reason",
        "regarding.apiVersion",
        "regarding.fieldPath",
        "regarding.kind",
        "regarding.name",
        "regarding.namespace",
        "regarding.resourceVersion",
        "regarding.uid",
        "reportingComponent",
        "reportingController",
        "source",
        "type",
    ];

    /// The wall clock was set back by a year, say.
    #[test]
    fn expiry_is_never_later_than_the_longest_time_to_live() {
        let longest = Duration::from_secs(3_600);
        let expiries = Expiries {
            order: Mutex::default(),
            longest,
            changed: Notify::new(),
        };
        let (wall, now) = (1_700_000_000, Duration::from_secs(7));
        let end = |seconds| expiries.end(seconds, wall, now);
        assert_eq!(end(wall + 60), now + Duration::from_secs(60));
        assert_eq!(end(wall + 365 * 86_400), now + longest);
        assert_eq!(end(wall - 1), now);
    }

    /// An entry as the registry makes it: slices of one buffer that is as long as it has to be.
    fn event(at: u64) -> Arc<Entry> {
        let name = format!("web-7d4b9c6f5d-{at:05}.17f3a2b4c5d6e7f8");
        let mut bytes = vec![b'x'; 1_300];
        bytes.shrink_to_fit();
        let bytes = Bytes::from(bytes);
        let value = |path: &str| match path.rsplit('.').next() {
            Some("name") => format!("web-7d4b9c6f5d-{at:05}"),
            Some("uid") => format!("0e8d8b0e-7c0a-4a55-9a57-c1b0f3a{at:05}"),
            Some("resourceVersion") => at.to_string(),
            Some("fieldPath") => "spec.containers{web}".to_owned(),
            _ => "kubelet".to_owned(),
        };
        let header = ObjectHeader {
            key: ObjectKey::new("tenant-a", &name),
            uid: Uid(format!("5a0f1d9e-1c1b-4f5e-8a57-c1b0f3a{at:05}")),
            creation_timestamp: Some("2026-11-23T06:00:00Z".into()),
            fields: FIELDS.iter().map(|path| (*path, value(path))).collect(),
            ..ObjectHeader::default()
        };
        Arc::new(Entry {
            key: Key::parse(&format!("/registry/events/tenant-a/{name}")).unwrap(),
            revision: Revision(at),
            created: Revision(at),
            expires: Some(3_600),
            record: Record {
                parts: [bytes.slice(..34), bytes.slice(34..300), bytes.slice(300..)],
                fingerprint: 1,
                header: Arc::new(header),
            },
            seal: Default::default(),
        })
    }

    /// Counts the tree, the order of expiries and what the allocator rounds up to.
    #[test]
    fn footprint_of_events_is_the_memory_that_they_take() {
        let runtime = Simulation::new(1).runtime();
        let before = held();
        let mut live = Live::default();
        let expiries = Expiries::of(&live, &runtime, Duration::MAX);
        let mut counted = 0;
        for number in 0..20_000 {
            let entry = event(number);
            counted += entry.footprint();
            let event = Event {
                revision: entry.revision,
                key: entry.key.clone(),
                entry: Some(entry),
                previous: None,
            };
            live.apply(&event);
            expiries.changed(&event, &runtime);
        }
        let taken = held() - before;
        assert!(
            taken <= counted && counted <= taken * 9 / 8,
            "{counted} counted, {taken} taken"
        );
        drop((live, expiries));
        assert!(held() - before < 64 << 10, "all of it was theirs");
    }
}
