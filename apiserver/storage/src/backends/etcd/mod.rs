//! etcd behind the same contract, for several API servers over one store. Keys and values are upstream's.
//!
//! Everything that knows the client crate is in this folder. The [`RecordCodec`] that the registry gives turns stored
//! values into records and back. Reads are linearizable; a group is one transaction, so its changes share a revision.
//! Each watch is one stream; every few minutes one of the servers compacts, agreed through upstream's own key.

mod compactor;
mod cursor;
mod leases;
mod options;
mod remote;
#[cfg(test)]
mod tests;

use crate::encryption::Encryption;
use crate::write::check_group;
use crate::{
    Event, Expect, Key, Lookup, Op, Page, Prefix, RangeOptions, ReadAt, RecordCodec, Storage, StorageError,
    WatchCursor, WatchRequest, Write,
};
use async_trait::async_trait;
use cursor::EtcdCursor;
use etcd_client::{
    BalancedChannelBuilder, Client, Compare, CompareOp, DeleteOptions, GetOptions, KvClient, PutOptions, Txn,
    TxnOp, TxnOpResponse,
};
use leases::Leases;
use machinery_meta::Revision;
use machinery_runtime::{Runtime, Scope};
pub use options::EtcdOptions;
use remote::{Remote, failed, number};
use std::sync::Arc;
use std::time::Duration;

/// Storage in etcd.
#[derive(Debug)]
pub struct EtcdStorage {
    remote: Remote,
    leases: Leases,
    range_chunk: usize,
    scope: Scope,
    /// Below the scope: writes that were taken up.
    writes: Scope,
}

/// How often a list of now is begun again because a compaction overtook it.
const LIST_ATTEMPTS: usize = 5;
/// How long a write waits for its answer: upstream's bound of a mutation, so that a hung etcd collects no tasks.
const ANSWERED_WITHIN: Duration = Duration::from_secs(34);
/// How long closing waits for writes that were taken up.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

impl EtcdStorage {
    /// Connects. It is not an error that no member answers yet; requests then say so.
    pub async fn connect(runtime: &Runtime, options: &EtcdOptions) -> Result<Self, StorageError> {
        let client = Client::connect(&options.endpoints, Some(options.how())).await;
        Ok(Self::over(runtime, client.map_err(failed)?, options))
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
        Ok(Self::over(runtime, client.map_err(failed)?, options))
    }

    fn over(runtime: &Runtime, client: Client, options: &EtcdOptions) -> Self {
        let scope = runtime.child_scope();
        let remote = Remote::new(
            client,
            scope.runtime().cancellation_token(),
            options.encryption.clone(),
        );
        if !options.retention.is_zero() {
            let (own, retention) = (scope.runtime().clone(), options.retention);
            let remote = remote.clone();
            let compact = move || compactor::run(own.clone(), remote.clone(), retention);
            scope.runtime().keep("etcd compaction", compact).detach();
        }
        Self {
            remote,
            leases: Leases::default(),
            range_chunk: options.range_chunk.max(1),
            writes: scope.runtime().child_scope(),
            scope,
        }
    }

    fn kv(&self) -> Result<KvClient, StorageError> {
        self.remote.kv()
    }

    async fn operation(&self, write: &Write) -> Result<Option<TxnOp>, StorageError> {
        let key = write.key.as_str();
        Ok(match &write.op {
            Op::Check => None,
            Op::Delete => Some(TxnOp::delete(key, Some(DeleteOptions::new().with_prev_key()))),
            Op::Put { record, ttl } => {
                let encoded = self.remote.codec()?.encode(&write.key, record);
                let value = encoded.map_err(|cause| StorageError::Unreadable {
                    key: key.to_owned(),
                    cause,
                })?;
                let mut options = PutOptions::new().with_prev_key();
                if let Some(ttl) = ttl {
                    let runtime = self.scope.runtime();
                    options = options.with_lease(self.leases.lease(runtime, &self.remote, *ttl).await?);
                }
                let (value, _) = self.remote.sealed(&write.key, value);
                Some(TxnOp::put(key, value, Some(options)))
            }
        })
    }

    fn events(
        &self,
        group: Vec<Write>,
        responses: Vec<TxnOpResponse>,
        revision: Revision,
    ) -> Result<Vec<Arc<Event>>, StorageError> {
        let changes = group.into_iter().filter(|write| !matches!(write.op, Op::Check));
        let mut events = Vec::new();
        for (write, response) in changes.zip(responses) {
            let previous = match &response {
                TxnOpResponse::Put(put) => put.prev_key().map(|kv| self.remote.entry(kv)),
                TxnOpResponse::Delete(delete) => delete.prev_kvs().first().map(|kv| self.remote.entry(kv)),
                TxnOpResponse::Get(_) | TxnOpResponse::Txn(_) => None,
            };
            let previous = previous.transpose()?;
            let created = previous.as_ref().map_or(revision, |previous| previous.created);
            let entry = match write.op {
                Op::Put { record, ttl } => {
                    let key = write.key.clone();
                    let seal = self.remote.current_seal(&key);
                    Some(Arc::new(crate::Entry {
                        seal,
                        key,
                        revision,
                        created,
                        expires: ttl.map(|_| remote::LEASED),
                        record,
                    }))
                }
                Op::Delete | Op::Check => None,
            };
            events.push(Arc::new(Event {
                revision,
                key: write.key,
                entry,
                previous,
            }));
        }
        Ok(events)
    }

    /// Which expectation did not hold, from what the transaction found instead.
    fn conflict(&self, group: &[Write], responses: Vec<TxnOpResponse>) -> Result<StorageError, StorageError> {
        for (index, (write, response)) in group.iter().zip(responses).enumerate() {
            let TxnOpResponse::Get(found) = response else {
                continue;
            };
            let current = found.kvs().first().map(|kv| self.remote.entry(kv)).transpose()?;
            let holds = match write.expect {
                Expect::Any => current.is_some() || !matches!(write.op, Op::Delete),
                Expect::Absent => current.is_none(),
                Expect::Present => current.is_some(),
                Expect::At(revision) => current.as_ref().is_some_and(|entry| entry.revision == revision),
            };
            if !holds {
                return Ok(StorageError::Conflict {
                    index,
                    key: write.key.clone(),
                    current,
                });
            }
        }
        Err(StorageError::Unavailable(
            "etcd refused a transaction whose comparisons hold".to_owned(),
        ))
    }

    /// One request of a range.
    async fn chunk(
        &self,
        start: Vec<u8>,
        prefix: &Prefix,
        at: Revision,
        limit: usize,
    ) -> Result<(Vec<Arc<crate::Entry>>, Revision, u64), StorageError> {
        let options = GetOptions::new()
            .with_range(prefix.end())
            .with_limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .with_revision(number(at));
        let answer = self.remote.waiting(self.kv()?.get(start, Some(options))).await?;
        let entries: Result<Vec<_>, _> = answer.kvs().iter().map(|kv| self.remote.entry(kv)).collect();
        let entries = entries?;
        let left = u64::try_from(answer.count())
            .unwrap_or(0)
            .saturating_sub(entries.len() as u64);
        let revision = if at == Revision::ZERO {
            remote::revision(answer.header())
        } else {
            at
        };
        Ok((entries, revision, left))
    }

    /// A range at one revision, in as many requests as it takes.
    async fn read_range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        let asked = self.at(options.at).await?;
        let after = options
            .start_after
            .as_ref()
            .filter(|key| key.as_str() > prefix.as_str());
        let mut start = after.map_or_else(|| prefix.as_str().as_bytes().to_vec(), following);
        let mut page = Page {
            entries: Vec::new(),
            revision: asked,
            remaining: 0,
        };
        loop {
            let wanted = if options.limit == 0 {
                self.range_chunk
            } else {
                options.limit - page.entries.len()
            };
            let chunk = self
                .chunk(start, prefix, page.revision, wanted.min(self.range_chunk))
                .await;
            let (entries, revision, left) = match chunk {
                Ok(chunk) => chunk,
                Err(error) => return Err(self.explain(error, page.revision).await),
            };
            page.entries.extend(entries);
            (page.revision, page.remaining) = (revision, left);
            let full = options.limit != 0 && page.entries.len() >= options.limit;
            match page.entries.last() {
                Some(last) if left > 0 && !full => start = following(&last.key),
                _ => return Ok(page),
            }
        }
    }

    async fn at(&self, at: ReadAt) -> Result<Revision, StorageError> {
        let asked = match at {
            ReadAt::Latest => return Ok(Revision::ZERO),
            ReadAt::NotBefore(asked) | ReadAt::Exact(asked) => asked,
        };
        let current = self.remote.current().await?;
        if asked > current {
            return Err(StorageError::Future { asked, current });
        }
        Ok(if matches!(at, ReadAt::Exact(_)) {
            asked
        } else {
            Revision::ZERO
        })
    }

    /// An error about a revision learns its numbers.
    async fn explain(&self, error: StorageError, asked: Revision) -> StorageError {
        match error {
            StorageError::Compacted { .. } => {
                let compacted = self.remote.compacted().await.unwrap_or_default();
                StorageError::Compacted { asked, compacted }
            }
            other => other,
        }
    }
}

fn comparison(write: &Write) -> Option<Compare> {
    let key = write.key.as_str();
    match write.expect {
        Expect::Any if matches!(write.op, Op::Delete) => Some(Compare::version(key, CompareOp::Greater, 0)),
        Expect::Any => None,
        Expect::Absent => Some(Compare::version(key, CompareOp::Equal, 0)),
        Expect::Present => Some(Compare::version(key, CompareOp::Greater, 0)),
        Expect::At(revision) => Some(Compare::mod_revision(key, CompareOp::Equal, number(revision))),
    }
}

#[async_trait]
impl Storage for EtcdStorage {
    async fn get(&self, key: &Key, at: ReadAt) -> Result<Lookup, StorageError> {
        let at = self.at(at).await?;
        let options = GetOptions::new().with_revision(number(at));
        let answer = match self
            .remote
            .waiting(self.kv()?.get(key.as_str(), Some(options)))
            .await
        {
            Ok(answer) => answer,
            Err(error) => return Err(self.explain(error, at).await),
        };
        let entry = answer.kvs().first().map(|kv| self.remote.entry(kv)).transpose()?;
        let revision = if at == Revision::ZERO {
            remote::revision(answer.header())
        } else {
            at
        };
        Ok(Lookup { entry, revision })
    }

    async fn range(&self, prefix: &Prefix, options: &RangeOptions) -> Result<Page, StorageError> {
        for _ in 1..LIST_ATTEMPTS {
            match self.read_range(prefix, options).await {
                // Nobody asked for the revision that the first part happened to be read at.
                Err(StorageError::Compacted { .. }) if !matches!(options.at, ReadAt::Exact(_)) => {}
                answer => return answer,
            }
        }
        self.read_range(prefix, options).await
    }

    async fn count(&self, prefix: &Prefix) -> Result<u64, StorageError> {
        let options = GetOptions::new().with_range(prefix.end()).with_count_only();
        let answer = self
            .remote
            .waiting(self.kv()?.get(prefix.as_str(), Some(options)))
            .await?;
        Ok(u64::try_from(answer.count()).unwrap_or(0))
    }

    async fn commit(&self, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
        check_group(&group)?;
        let compares: Vec<Compare> = group.iter().filter_map(comparison).collect();
        let mut operations = Vec::with_capacity(group.len());
        for write in &group {
            operations.extend(self.operation(write).await?);
        }
        let look: Vec<TxnOp> = group
            .iter()
            .map(|write| TxnOp::get(write.key.as_str(), None))
            .collect();
        let transaction = Txn::new().when(compares).and_then(operations).or_else(look);
        let mut client = self.kv()?;
        // In a task of its own: a caller that goes away does not stop a write halfway.
        let own = self.writes.runtime().clone();
        let sent = self.writes.runtime().spawn("etcd write", async move {
            own.timeout(ANSWERED_WITHIN, client.txn(transaction)).await
        });
        let stopped = |_| StorageError::Unavailable("storage is closed".to_owned());
        let late = |_| StorageError::Unavailable("etcd has not answered in time".to_owned());
        let answer = sent.await.map_err(stopped)?.map_err(late)?.map_err(failed)?;
        if answer.succeeded() {
            let revision = remote::revision(answer.header());
            return self.events(group, answer.op_responses(), revision);
        }
        Err(self.conflict(&group, answer.op_responses())?)
    }

    async fn watch(&self, request: WatchRequest) -> Result<Box<dyn WatchCursor>, StorageError> {
        if request.interests.is_empty() {
            return Err(StorageError::InvalidGroup("a watch needs an interest"));
        }
        let (asked, current) = (request.after, self.remote.current().await?);
        if asked > current {
            return Err(StorageError::Future { asked, current });
        }
        Ok(Box::new(EtcdCursor::open(&self.remote, request).await?))
    }

    async fn current_revision(&self) -> Result<Revision, StorageError> {
        self.remote.current().await
    }

    async fn compacted_revision(&self) -> Result<Revision, StorageError> {
        self.remote.compacted().await
    }

    async fn reached(&self, revision: Revision) -> Result<(), StorageError> {
        self.remote.reached(revision).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        match self
            .remote
            .waiting(self.kv()?.compact(number(revision), None))
            .await
        {
            // It was done already.
            Ok(_) | Err(StorageError::Compacted { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    fn is_stale(&self, entry: &crate::Entry) -> bool {
        let encryption = self.remote.encryption.as_ref();
        encryption.is_some_and(|encryption| encryption.current_seal(&entry.key) != entry.seal)
    }

    fn encryption(&self) -> Option<Arc<Encryption>> {
        self.remote.encryption.clone()
    }

    fn interpret_with(&self, codec: Arc<dyn RecordCodec>) {
        self.remote.interpret_with(codec);
    }

    async fn close(&self) {
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

/// The first key after this one.
fn following(key: &Key) -> Vec<u8> {
    let mut bytes = key.as_str().as_bytes().to_vec();
    bytes.push(0);
    bytes
}
