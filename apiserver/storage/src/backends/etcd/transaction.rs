//! Groups as transactions: all expectations compared, all operations done, at one revision.

use super::EtcdStorage;
use super::remote::{self, failed, number};
use crate::{Event, Expect, Op, StorageError, Write};
use etcd_client::{Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};
use machinery_meta::Revision;
use std::sync::Arc;
use std::time::Duration;

/// Time that a write waits for its answer: upstream's bound of a mutation, so that a hung etcd collects no tasks.
const ANSWERED_WITHIN: Duration = Duration::from_secs(34);

impl EtcdStorage {
    pub(super) async fn transact(&self, group: Vec<Write>) -> Result<Vec<Arc<Event>>, StorageError> {
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
        let mut client = self.remote.kv()?;
        // In a task of its own: a caller that goes away does not stop a write halfway.
        let own = self.writes.runtime().clone();
        let sent = self.writes.runtime().spawn("etcd write", async move {
            own.timeout(ANSWERED_WITHIN, client.txn(transaction)).await
        });
        let stopped = |_| StorageError::Unavailable("storage is closed".to_owned());
        let late = |_| StorageError::Unavailable("etcd has not answered in time".to_owned());
        let answer = sent.await.map_err(stopped)?.map_err(late)?.map_err(failed)?;
        self.prepare_answer(&answer).await;
        if answer.succeeded() {
            let revision = remote::revision(answer.header());
            return self.events(group, answer.op_responses(), revision);
        }
        Err(self.conflict(&group, answer.op_responses())?)
    }

    /// Has the keys of values in an answer decrypted.
    async fn prepare_answer(&self, answer: &TxnResponse) {
        if !self
            .remote
            .encryption
            .as_ref()
            .is_some_and(|own| own.has_plugins())
        {
            return;
        }
        let responses = answer.op_responses();
        let found = responses.iter().flat_map(|response| match response {
            TxnOpResponse::Put(put) => put.prev_key().into_iter().collect::<Vec<_>>(),
            TxnOpResponse::Delete(delete) => delete.prev_kvs().iter().collect(),
            TxnOpResponse::Get(get) => get.kvs().iter().collect(),
            TxnOpResponse::Txn(_) => Vec::new(),
        });
        self.remote.prepare(found.collect()).await;
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
                let value = self.remote.sealed(&write.key, value)?;
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
            let replaced = match &response {
                TxnOpResponse::Put(put) => put.prev_key(),
                TxnOpResponse::Delete(delete) => delete.prev_kvs().first(),
                TxnOpResponse::Get(_) | TxnOpResponse::Txn(_) => None,
            };
            let created = replaced.map_or(revision, |kv| remote::unsigned(kv.create_revision()));
            // It is written: a value that could not be read does not make a failure of it.
            let previous = replaced.and_then(|kv| self.remote.entry(kv).ok());
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

    /// The error of the expectation that failed, from the state that the transaction found.
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
