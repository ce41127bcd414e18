//! etcd behind the same contract, for several API servers over one store. Keys and values are upstream's.
//!
//! Everything that knows the client crate is in this folder. The [`RecordCodec`](crate::RecordCodec) that the registry gives turns stored
//! values into records and back. One watch on our prefix ([`follower`]) feeds a [`mirror`] in memory, from which reads and
//! watches are served: a read first learns etcd's revision, once for all concurrent reads ([`shared_read`]), and waits until the
//! mirror has it. [`direct`] reads go to etcd where the mirror cannot answer; [`past`] reads older changes for slow
//! watches. Values that servers agree on beside the objects have keys of their own ([`shared`]). A group is one transaction ([`transaction`]), so its changes share a revision. Every few minutes one of the
//! servers compacts, agreed through upstream's own key.
//!
//! Never: a stream of etcd's that a client paces, or that there are more of because there are more clients.

mod account;
mod compactor;
mod direct;
mod follower;
mod leases;
mod mirror;
mod options;
mod past;
mod remote;
mod shared;
mod shared_read;
#[cfg(test)]
mod tests;
mod transaction;

use crate::cursor::FeedCursor;
use crate::encryption::{Encryption, UndecryptedValues};
use crate::live::{self, Pin};
use crate::write::check_group;
use crate::{
    Claim, CodecSlot, Entry, Event, Key, Lookup, Page, Prefix, RangeOptions, ReadAt, Record, Sample,
    SharedValues, Storage, StorageError, Target, Usage, WatchCursor, WatchRequest, Write,
};
use async_trait::async_trait;
use etcd_client::{BalancedChannelBuilder, Client};
use follower::{Follower, covers};
use leases::Leases;
use machinery_meta::Revision;
use machinery_runtime::{Runtime, Scope};
use mirror::Mirror;
pub use options::EtcdOptions;
use parking_lot::Mutex;
use remote::{Remote, failed, number, unsigned};
use shared_read::SharedRead;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Storage in etcd.
#[derive(Debug)]
pub struct EtcdStorage {
    remote: Remote,
    mirror: Arc<Mirror>,
    /// etcd's revision, and its floor, requested by many at once.
    current: SharedRead<Revision>,
    floor: SharedRead<Revision>,
    leases: Leases,
    /// Values that servers share, as they are stored; `None` until they are read.
    shared: Mutex<Option<Vec<SharedValue>>>,
    range_chunk: usize,
    scope: Scope,
    /// Below the scope: writes that were taken up.
    writes: Scope,
}

/// A value that servers share, as it is stored.
type SharedValue = (Key, Vec<u8>);

/// Time that etcd has to report its revision.
const CHECKED_WITHIN: Duration = Duration::from_secs(5);
/// Time that a read waits for the mirror, as upstream's watch cache; then etcd answers.
const FRESH_WITHIN: Duration = Duration::from_secs(3);
/// Time that closing waits for accepted writes.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// The source of a read's answer.
enum Held {
    Memory(Pin),
    /// As of a revision; zero means now.
    Etcd(Revision),
}

impl EtcdStorage {
    /// Connects. It is not an error that no member answers yet; requests then say so.
    pub async fn connect(runtime: &Runtime, options: &EtcdOptions) -> Result<Self, StorageError> {
        let client = Client::connect(&options.endpoints, Some(options.how())).await;
        Self::over(runtime, client.map_err(failed)?, options)
    }

    /// The same over a transport of the caller's, which stands for the connections to every endpoint.
    pub async fn connect_through<T>(
        runtime: &Runtime,
        options: &EtcdOptions,
        transport: T,
    ) -> Result<Self, StorageError>
    where
        T: BalancedChannelBuilder,
        etcd_client::Error: From<T::Error>,
    {
        let (endpoints, how) = (&options.endpoints, options.how());
        let client = Client::connect_with_balanced_channel(endpoints, Some(how), transport).await;
        Self::over(runtime, client.map_err(failed)?, options)
    }

    fn over(runtime: &Runtime, client: Client, options: &EtcdOptions) -> Result<Self, StorageError> {
        let scope = runtime.child_scope();
        let own = scope.runtime();
        if let Some(encryption) = &options.encryption {
            encryption.block_no_more();
        }
        let remote = Remote::new(client, own.cancellation_token(), options.encryption.clone());
        let prefix = Prefix::parse(&options.prefix)?;
        let mirror = Mirror::new(own.clone(), prefix, options, remote.clone());
        let mirror = Arc::new(mirror);
        if !options.retention.is_zero() {
            let (followed, reached, retention) = (Arc::clone(&mirror), remote.clone(), options.retention);
            let compact = move || compactor::run(Arc::clone(&followed), reached.clone(), retention);
            own.keep("etcd compaction", compact).detach();
        }
        follow(own, &mirror, &remote, options.range_chunk.max(1));
        Ok(Self {
            remote,
            mirror,
            current: SharedRead::default(),
            floor: SharedRead::default(),
            leases: Leases::default(),
            shared: Mutex::default(),
            range_chunk: options.range_chunk.max(1),
            writes: own.child_scope(),
            scope,
        })
    }

    async fn within<T>(&self, time: Duration, wait: impl Future<Output = T>) -> Option<T> {
        self.scope.runtime().timeout(time, wait).await.ok()
    }

    /// etcd's revision, as of some time after the call.
    async fn checked(&self) -> Result<Revision, StorageError> {
        let known = self.mirror.revision().unwrap_or_default();
        let ask = || async {
            let late = || StorageError::Unreachable {
                cause: format!("no answer in {CHECKED_WITHIN:?}"),
            };
            self.within(CHECKED_WITHIN, self.remote.current())
                .await
                .ok_or_else(late)?
        };
        let current = self.current.read(ask).await?;
        if current < known {
            self.mirror.doubted.notify_one();
            let why = format!("etcd went back from revision {known} to {current}");
            return Err(StorageError::Unavailable(why));
        }
        Ok(current)
    }

    /// The mirror's state once it is of this revision; etcd's own where that takes too long.
    async fn fresh(&self, revision: Revision) -> Result<Held, StorageError> {
        let reached = self.remote.unless_closed(self.mirror.reached(revision));
        match self.within(FRESH_WITHIN, reached).await {
            Some(reached) => reached?,
            None => tracing::warn!(%revision, "the watch of etcd is late, a read goes to etcd"),
        }
        Ok(self.at_hand(revision).unwrap_or(Held::Etcd(Revision::ZERO)))
    }

    /// The mirror's state when it is of this revision or a later one.
    fn at_hand(&self, revision: Revision) -> Option<Held> {
        let now = self.mirror.now()?;
        (now.revision >= revision).then_some(Held::Memory(now))
    }

    async fn held(&self, at: ReadAt) -> Result<Held, StorageError> {
        match at {
            ReadAt::Latest => self.fresh(self.checked().await?).await,
            ReadAt::NotBefore(asked) => {
                if let Some(held) = self.at_hand(asked) {
                    return Ok(held);
                }
                self.has_happened(asked).await?;
                self.fresh(asked).await
            }
            ReadAt::Exact(asked) => self.held_of(asked).await,
        }
    }

    async fn held_of(&self, asked: Revision) -> Result<Held, StorageError> {
        let compacted = self.mirror.compacted();
        if asked < compacted {
            return Err(StorageError::Compacted { asked, compacted });
        }
        match self.mirror.now() {
            Some(now) if now.revision == asked => return Ok(Held::Memory(now)),
            Some(now) if now.revision > asked => {}
            _ => self.has_happened(asked).await?,
        }
        let pinned = self.mirror.pins.lock().get(asked);
        Ok(pinned.map_or(Held::Etcd(asked), Held::Memory))
    }

    async fn has_happened(&self, asked: Revision) -> Result<(), StorageError> {
        let current = self.checked().await?;
        if asked > current {
            return Err(StorageError::Future { asked, current });
        }
        Ok(())
    }

    /// Refuses what lies elsewhere in etcd.
    fn is_ours(&self, key: &Key) -> Result<(), StorageError> {
        if self.mirror.prefix.contains(key) {
            return Ok(());
        }
        Err(StorageError::InvalidKey(key.to_string()))
    }

    fn covers(&self, prefix: &Prefix) -> Result<(), StorageError> {
        if covers(&self.mirror.prefix, prefix) {
            return Ok(());
        }
        Err(StorageError::InvalidKey(prefix.to_string()))
    }
}

/// Follows etcd as soon as values can be read.
fn follow(runtime: &Runtime, mirror: &Arc<Mirror>, remote: &Remote, range_chunk: usize) {
    let (mirror, remote) = (Arc::clone(mirror), remote.clone());
    let begin = move || {
        let follower = Follower {
            mirror: Arc::clone(&mirror),
            remote: remote.clone(),
            range_chunk,
        };
        async move {
            follower.run().await;
            Ok(())
        }
    };
    runtime.supervise("etcd watch", begin).detach();
}

#[async_trait]
impl Storage for EtcdStorage {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError> {
        self.is_ours(key)?;
        match self.held(at).await? {
            Held::Memory(pin) if !self.mirror.is_unread(key) => Ok(Lookup {
                entry: pin.root.get(key.as_str()).cloned(),
                revision: pin.revision,
            }),
            Held::Memory(pin) if matches!(at, ReadAt::Exact(_)) => self.get_directly(key, pin.revision).await,
            Held::Memory(_) => self.get_directly(key, Revision::ZERO).await,
            Held::Etcd(at) => self.get_directly(key, at).await,
        }
    }

    async fn range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        self.covers(prefix)?;
        match self.held(options.at).await? {
            Held::Memory(pin) if !self.mirror.has_unread_below(prefix) => {
                let (entries, remaining) = live::page(&pin.root, prefix, options);
                let revision = pin.revision;
                if remaining > 0 {
                    self.mirror.pins.lock().pin(pin);
                }
                Ok(Page {
                    entries,
                    revision,
                    remaining,
                })
            }
            Held::Memory(pin) if matches!(options.at, ReadAt::Exact(_)) => {
                self.range_directly(prefix, options, pin.revision).await
            }
            Held::Memory(_) => self.range_directly(prefix, options, Revision::ZERO).await,
            Held::Etcd(at) => self.range_directly(prefix, options, at).await,
        }
    }

    async fn stored_revision(&self, key: &Key) -> Result<Option<Revision>, StorageError> {
        self.is_ours(key)?;
        let answer = self
            .remote
            .waiting(self.remote.kv()?.get(key.as_str(), None))
            .await?;
        Ok(answer.kvs().first().map(|kv| unsigned(kv.mod_revision())))
    }

    fn sample(&self, prefix: &Prefix, most: usize) -> Option<Sample> {
        let root = self.mirror.now()?.root;
        Some(root.sample(prefix, most))
    }

    fn entries_in_memory(&self, prefix: &Prefix) -> Option<(Vec<Arc<Entry>>, Revision)> {
        self.mirror.entries_below(prefix)
    }

    async fn count(&self, prefix: &Prefix) -> Result<u64, StorageError> {
        self.covers(prefix)?;
        match self.held(ReadAt::Latest).await? {
            Held::Memory(pin) => Ok(pin.root.count_below(prefix, None)),
            Held::Etcd(_) => self.count_directly(prefix).await,
        }
    }

    async fn commit_for(&self, claim: Claim, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        check_group(&group)?;
        group.iter().try_for_each(|write| self.is_ours(&write.key))?;
        let room = self.mirror.reserve(&group, claim)?;
        let events = self.transact(group).await?;
        // A group that only compares has no events, and no room either.
        if let Some(event) = events.first() {
            room.written(event.revision);
        }
        Ok(events)
    }

    fn has_room_for(&self, claim: Claim, group: &[Write]) -> Result<(), StorageError> {
        self.mirror.reserve(group, claim).map(drop)
    }

    fn usage(&self) -> Usage {
        self.mirror.usage()
    }

    fn is_over_quota(&self) -> bool {
        self.mirror.account().ledger.is_full()
    }

    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn WatchCursor>, StorageError> {
        for interest in &request.interests {
            match &interest.target {
                Target::Key(key) => self.is_ours(key)?,
                Target::Prefix(prefix) => self.covers(prefix)?,
            }
        }
        let asked = request.after;
        if self.at_hand(asked).is_none() {
            self.has_happened(asked).await?;
            let reached = self.remote.unless_closed(self.mirror.reached(asked));
            let late = || StorageError::Unavailable(format!("the watch of etcd has not reached {asked} yet"));
            self.within(FRESH_WITHIN, reached).await.ok_or_else(late)??;
        }
        Ok(Box::new(FeedCursor::open(&self.mirror, request)?))
    }

    async fn current_revision(&self) -> Result<Revision, StorageError> {
        self.checked().await
    }

    async fn compacted_revision(&self) -> Result<Revision, StorageError> {
        let floor = self.floor.read(|| self.remote.compacted()).await?;
        self.mirror.compact(floor);
        Ok(floor.max(self.mirror.compacted()))
    }

    async fn reached(&self, revision: Revision) -> Result<(), StorageError> {
        self.remote.unless_closed(self.mirror.reached(revision)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        match self
            .remote
            .waiting(self.remote.kv()?.compact(number(revision), None))
            .await
        {
            // It was done already.
            Ok(_) | Err(StorageError::Compacted { .. }) => {
                self.mirror.compact(revision);
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    fn recache(&self, key: &Key, revision: Revision, record: Record) -> bool {
        self.mirror.recache(key, revision, record)
    }

    fn is_stale(&self, entry: &crate::Entry) -> bool {
        let encryption = self.remote.encryption.as_ref();
        encryption.is_some_and(|encryption| encryption.current_seal(&entry.key) != entry.seal)
    }

    fn encryption(&self) -> Option<Arc<Encryption>> {
        self.remote.encryption.clone()
    }

    fn unopened(&self) -> UndecryptedValues {
        UndecryptedValues::of(&self.mirror.unread())
    }

    fn is_encryption_behind(&self) -> bool {
        self.is_shared_behind()
    }

    fn lost_by(&self, other: &Encryption) -> Result<UndecryptedValues, StorageError> {
        let unread = || StorageError::Unavailable("the values in etcd are not read yet".to_owned());
        let root = self.mirror.now().ok_or_else(unread)?.root;
        let shared = self.shared_lost_by(other).ok_or_else(unread)?;
        let lost = root
            .values()
            .filter(|entry| !other.has_key_of(&entry.key, entry.seal));
        Ok(UndecryptedValues::of(
            shared.iter().chain(lost.map(|entry| &entry.key)),
        ))
    }

    async fn keys_changed(&self) {
        self.encryption_replaced().await;
    }

    async fn encryption_replaced(&self) {
        for key in self.mirror.unread() {
            match self.get_directly(&key, Revision::ZERO).await {
                Ok(found) => found.entry.iter().for_each(|entry| self.mirror.now_read(entry)),
                Err(StorageError::Sealed { .. } | StorageError::Unreadable { .. }) => {}
                Err(error) => {
                    // Reads of what is left go to etcd as before.
                    tracing::warn!(error = error.chain(), "rechecking values in etcd failed");
                    return;
                }
            }
        }
    }

    fn codec(&self) -> Option<&CodecSlot> {
        Some(&self.remote.codec)
    }

    fn shared(&self) -> Option<&dyn SharedValues> {
        Some(self)
    }

    async fn close(&self) {
        self.mirror.close();
        self.remote.close();
        let finished = self.scope.runtime().timeout(FINISH_WITHIN, self.writes.drained());
        if finished.await.is_err() {
            tracing::warn!(
                "etcd has not answered for every write; storage is closed without knowing of them"
            );
        }
        self.scope.stopped().await;
    }
}

impl Drop for EtcdStorage {
    fn drop(&mut self) {
        self.mirror.close();
        self.remote.close();
    }
}
