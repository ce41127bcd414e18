//! The one watch on our prefix, and what keeps it going.
//!
//! It begins with the state at one revision and goes on with every change after it. A stream that breaks is taken up
//! where it was, unnoticed by watchers. Only where etcd no longer has what was missed, the state is read again. An etcd that
//! has forgotten what it sent before was restored from a backup: then everything starts over, and every watch ends.

use super::mirror::{Listed, Mirror, WatchedChange};
use super::remote::{Remote, key, number, revision, unsigned};
use crate::encryption::UndecryptedValues;
use crate::{Key, Prefix, StorageError};
use etcd_client::{EventType, GetOptions, WatchOptions, WatchRequestSender, WatchResponse};
use machinery_meta::Revision;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) mirror: Arc<Mirror>,
    pub(super) remote: Remote,
    pub(super) range_chunk: usize,
}

/// Pause before the first new attempt; each that fails doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A stream that lived this long counts as one that worked.
const WORKED: Duration = Duration::from_secs(1);
/// Interval between progress requests of a watch that no read waits for, so that bookmarks are recent.
const IDLE: Duration = Duration::from_secs(60);
/// Interval between progress requests while a read waits.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Time without an answer to a progress request after which a stream is abandoned.
const SILENT: Duration = Duration::from_secs(10);

/// The reason for which a stream has to be reopened.
enum ReopenReason {
    /// The missed changes are still there.
    None,
    /// The next changes have been compacted.
    Compacted(Revision),
}

impl Follower {
    /// Begins once there is a codec, ends with its scope.
    pub(super) async fn run(self) {
        if self
            .remote
            .unless_closed(self.remote.codec.filled())
            .await
            .is_err()
        {
            return;
        }
        let runtime = self.mirror.runtime.clone();
        let mut pause = FIRST_PAUSE;
        let mut reason = ReopenReason::None;
        loop {
            let begun = runtime.monotonic();
            let ended = self.follow(reason).await;
            reason = ReopenReason::None;
            match ended {
                StorageError::Closed => return,
                StorageError::Compacted { compacted, .. } => {
                    tracing::warn!(%compacted, "etcd has compacted what the watch had not received");
                    self.mirror.compact(compacted);
                    reason = ReopenReason::Compacted(compacted);
                }
                error => tracing::warn!(
                    error = error.chain(),
                    "the watch of etcd ended; it is opened again"
                ),
            }
            if runtime.monotonic().saturating_sub(begun) > WORKED {
                pause = FIRST_PAUSE;
            }
            // Servers that lost the same etcd do not come back in step.
            let spread = runtime.random_u64() % 1000;
            let part = u32::try_from(spread).unwrap_or(0);
            runtime.sleep(pause / 2 + pause / 2000 * part).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One stream, from what it begins with to what ends it.
    async fn follow(&self, reason: ReopenReason) -> StorageError {
        match self.begin(reason).await {
            Ok(after) => self.stream(after).await,
            Err(error) => error,
        }
    }

    /// Returns the revision at which the stream begins: after the state in memory, which is read first if necessary.
    async fn begin(&self, reason: ReopenReason) -> Result<Revision, StorageError> {
        let (now, cluster) = self.remote.now().await?;
        let Some(own) = self.mirror.revision() else {
            self.mirror.cluster.store(cluster, Ordering::Relaxed);
            let listed = self.list().await?;
            tracing::info!(revision = %listed.live.revision, objects = listed.live.root.len(), "etcd is read");
            let sealed = UndecryptedValues::of(&listed.sealed);
            if !sealed.is_empty() {
                tracing::error!(
                    "{}: reads of them fail until --encryption-provider-config has their keys",
                    sealed.described("cannot be decrypted")
                );
            }
            let after = listed.live.revision;
            self.mirror.replace(listed);
            return Ok(after);
        };
        if self.is_another(own, now, cluster).await? {
            let listed = self.list().await?;
            tracing::error!(
                known = %own, found = %listed.live.revision,
                "etcd does not hold what it held: it was restored from a backup or replaced. Every watch is ended, \
                 clients list again; restoring with --bump-revision and --mark-compacted spares them wrong revisions"
            );
            let after = listed.live.revision;
            self.mirror.cluster.store(cluster, Ordering::Relaxed);
            self.remote.forget_floor();
            self.mirror.start_over(listed);
            return Ok(after);
        }
        if matches!(reason, ReopenReason::Compacted(floor) if own < floor) {
            let listed = self.list().await?;
            let after = listed.live.revision;
            self.mirror.replace(listed);
            return Ok(after);
        }
        Ok(own)
    }

    /// Reports whether this etcd has another past than the one that was followed.
    async fn is_another(&self, own: Revision, now: Revision, cluster: u64) -> Result<bool, StorageError> {
        if now < own || cluster != self.mirror.cluster.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let Some(witness) = self.mirror.witness() else {
            return Ok(false);
        };
        let options = GetOptions::new().with_revision(number(witness.revision));
        let found = self
            .remote
            .waiting(self.remote.kv()?.get(witness.key.as_str(), Some(options)))
            .await;
        let found = match found {
            // Then the stream says so as well.
            Err(StorageError::Compacted { .. }) => return Ok(false),
            found => found?,
        };
        let is_witness = |kv: &etcd_client::KeyValue| {
            (unsigned(kv.mod_revision()), unsigned(kv.create_revision()))
                == (witness.revision, witness.created)
        };
        Ok(!found.kvs().first().is_some_and(is_witness))
    }

    /// Everything below the prefix, at one revision, in as many requests as it takes.
    async fn list(&self) -> Result<Listed, StorageError> {
        let prefix = &self.mirror.prefix;
        let (mut listed, mut start) = (Listed::default(), prefix.as_str().as_bytes().to_vec());
        loop {
            let at = listed.live.revision;
            let options = GetOptions::new()
                .with_range(prefix.end())
                .with_limit(i64::try_from(self.range_chunk).unwrap_or(i64::MAX))
                .with_revision(number(at));
            let answer = self
                .remote
                .waiting(self.remote.kv()?.get(start, Some(options)))
                .await?;
            if at == Revision::ZERO {
                listed.live.revision = revision(answer.header());
            }
            self.remote.prepare(answer.kvs().iter().collect()).await;
            for kv in answer.kvs() {
                match key(kv).map(|key| (self.remote.entry(kv), key)) {
                    Ok((Ok(entry), key)) => listed.insert(key, entry),
                    Ok((Err(error), key)) => listed.unreadable(key, unsigned(kv.mod_revision()), &error),
                    // Of a form that no reader here could request.
                    Err(_) => {}
                }
            }
            match answer.kvs().last() {
                Some(last) if answer.more() => {
                    start = last.key().to_vec();
                    start.push(0);
                }
                _ => return Ok(listed),
            }
        }
    }

    async fn stream(&self, after: Revision) -> StorageError {
        match self.receive(after).await {
            Ok(never) => never,
            Err(error) => error,
        }
    }

    async fn receive(&self, after: Revision) -> Result<StorageError, StorageError> {
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(number(after.next()))
            .with_progress_notify();
        let mut client = self.remote.watch_client();
        let opened = client.watch(self.mirror.prefix.as_str(), Some(options));
        let (mut requests, mut answers) = self.remote.waiting(opened).await?.split();
        let (mut last_answer, mut asked) = (self.mirror.runtime.monotonic(), None);
        loop {
            tokio::select! {
                biased;
                answer = self.remote.waiting(answers.message()) => {
                    let answer = answer?.ok_or_else(ended)?;
                    (last_answer, asked) = (self.mirror.runtime.monotonic(), None);
                    self.remote.prepare(answer.events().iter().filter_map(etcd_client::Event::kv).collect()).await;
                    self.take(&answer)?;
                }
                () = self.mirror.doubted.notified() => {
                    return Ok(StorageError::Unavailable("etcd went back to an older revision".to_owned()));
                }
                () = self.next_progress_request(asked) => {
                    self.ask(&mut requests).await?;
                    let now = self.mirror.runtime.monotonic();
                    let since = *asked.get_or_insert(now);
                    if now.saturating_sub(since.max(last_answer)) > SILENT {
                        return Ok(StorageError::Unavailable("the watch of etcd is silent".to_owned()));
                    }
                }
            }
        }
    }

    /// Waits until a progress request is due: at once for a waiting read, and again after a silence.
    async fn next_progress_request(&self, asked: Option<Duration>) {
        let runtime = &self.mirror.runtime;
        if asked.is_some() {
            runtime.sleep(ASK_AGAIN).await;
            return;
        }
        tokio::select! {
            biased;
            () = self.mirror.wanted.notified() => {}
            () = runtime.sleep(IDLE) => {}
        }
    }

    async fn ask(&self, requests: &mut WatchRequestSender) -> Result<(), StorageError> {
        self.remote.waiting(requests.request_progress()).await
    }

    fn take(&self, answer: &WatchResponse) -> Result<(), StorageError> {
        if let Some(error) = refused(answer, self.mirror.revision().unwrap_or_default()) {
            return Err(error);
        }
        if answer.created() {
            return Ok(());
        }
        let Some(last) = answer.events().last().and_then(etcd_client::Event::kv) else {
            // A progress mark: everything before it was sent.
            self.mirror.apply(Vec::new(), revision(answer.header()));
            return Ok(());
        };
        let until = unsigned(last.mod_revision());
        let own = self.mirror.revision().unwrap_or_default();
        let mut changes = Vec::with_capacity(answer.events().len());
        for event in answer.events() {
            let kv = event
                .kv()
                .ok_or_else(|| StorageError::Unavailable("etcd sent an event without a key".to_owned()))?;
            let at = unsigned(kv.mod_revision());
            // A member restored from a snapshot may send again what it has sent.
            if at <= own {
                continue;
            }
            let Ok(key) = key(kv) else { continue };
            changes.push(match event.event_type() {
                EventType::Delete => WatchedChange::Delete(key, at),
                EventType::Put => match self.remote.entry(kv) {
                    Ok(entry) => WatchedChange::Put(entry),
                    Err(error) => {
                        tracing::error!(%error, "a stored value cannot be read");
                        WatchedChange::Unread(key, at)
                    }
                },
            });
        }
        self.mirror.apply(changes, until);
        Ok(())
    }
}

/// The error with which etcd cancels a watch, if it does.
pub(super) fn refused(answer: &WatchResponse, asked: Revision) -> Option<StorageError> {
    if answer.compact_revision() != 0 {
        let compacted = unsigned(answer.compact_revision());
        if asked < compacted {
            return Some(StorageError::Compacted { asked, compacted });
        }
        // A member restored from a snapshot goes by the last event of a watch, not by the marks it has had since.
        let why = "etcd gave up a watch that is not behind".to_owned();
        return Some(StorageError::Unavailable(why));
    }
    answer
        .canceled()
        .then(|| StorageError::Unavailable(format!("etcd ended a watch: {}", answer.cancel_reason())))
}

pub(super) fn ended() -> StorageError {
    StorageError::Unavailable("etcd ended a watch".to_owned())
}

impl Listed {
    fn insert(&mut self, key: Key, entry: Arc<crate::Entry>) {
        self.live.bytes += entry.record.len() as u64;
        self.live.root.insert(key, entry);
    }

    fn unreadable(&mut self, key: Key, revision: Revision, error: &StorageError) {
        if let StorageError::Sealed { .. } = error {
            // There may be as many as there are objects.
            self.sealed.push(key.clone());
        } else {
            tracing::error!(%error, "a stored value cannot be read");
        }
        self.unread.insert(key, revision);
    }
}

/// Reports whether the requested prefix lies within the followed one.
pub(super) fn covers(own: &Prefix, asked: &Prefix) -> bool {
    asked.as_str().starts_with(own.as_str()) || own.as_str().starts_with(asked.as_str())
}
