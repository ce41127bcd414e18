//! Reads that etcd itself answers: older states, what is not in memory yet, and values that cannot be read.

use super::EtcdStorage;
use super::remote::{self, number};
use crate::error::all_readable;
use crate::{Entry, Key, Lookup, Page, Prefix, RangeOptions, StorageError};
use etcd_client::GetOptions;
use machinery_meta::Revision;
use std::sync::Arc;

/// Attempts at a list of the current state, each of which a compaction may overtake.
const LIST_ATTEMPTS: usize = 5;

impl EtcdStorage {
    /// Reads a key as of a revision; zero means the latest.
    pub(super) async fn get_directly(&self, key: &Key, at: Revision) -> Result<Lookup, StorageError> {
        let options = GetOptions::new().with_revision(number(at));
        let answer = self
            .remote
            .waiting(self.remote.kv()?.get(key.as_str(), Some(options)))
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.explain(error, at).await),
        };
        self.remote.prepare(answer.kvs().iter().collect()).await;
        let entry = answer.kvs().first().map(|kv| self.remote.entry(kv)).transpose()?;
        let revision = if at == Revision::ZERO {
            remote::revision(answer.header())
        } else {
            at
        };
        Ok(Lookup { entry, revision })
    }

    /// A range as of a revision; zero means now.
    pub(super) async fn range_directly(
        &self,
        prefix: &Prefix,
        options: &RangeOptions,
        at: Revision,
    ) -> Result<Page, StorageError> {
        for _ in 1..LIST_ATTEMPTS {
            match self.read_range(prefix, options, at).await {
                // The caller did not request the revision that the first part happened to be read at.
                Err(StorageError::Compacted { .. }) if at == Revision::ZERO => {}
                answer => return answer,
            }
        }
        self.read_range(prefix, options, at).await
    }

    pub(super) async fn count_directly(&self, prefix: &Prefix) -> Result<u64, StorageError> {
        let options = GetOptions::new().with_range(prefix.end()).with_count_only();
        let answer = self
            .remote
            .waiting(self.remote.kv()?.get(prefix.as_str(), Some(options)))
            .await?;
        Ok(u64::try_from(answer.count()).unwrap_or(0))
    }

    /// One request of a range.
    async fn chunk(
        &self,
        start: Vec<u8>,
        prefix: &Prefix,
        at: Revision,
        limit: usize,
    ) -> Result<Chunk, StorageError> {
        let options = GetOptions::new()
            .with_range(prefix.end())
            .with_limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .with_revision(number(at));
        let answer = self
            .remote
            .waiting(self.remote.kv()?.get(start, Some(options)))
            .await?;
        self.remote.prepare(answer.kvs().iter().collect()).await;
        let entries: Vec<_> = answer.kvs().iter().map(|kv| self.remote.entry(kv)).collect();
        let left = u64::try_from(answer.count())
            .unwrap_or(0)
            .saturating_sub(entries.len() as u64);
        let last = answer.kvs().last().map(|kv| kv.key().to_vec());
        let revision = if at == Revision::ZERO {
            remote::revision(answer.header())
        } else {
            at
        };
        Ok(Chunk {
            entries,
            last,
            revision,
            left,
        })
    }

    /// A range at one revision, in as many requests as it takes.
    async fn read_range(
        &self,
        prefix: &Prefix,
        options: &RangeOptions,
        asked: Revision,
    ) -> Result<Page, StorageError> {
        let after = options
            .start_after
            .as_ref()
            .filter(|key| key.as_str() > prefix.as_str());
        let start = after.map(|key| following(key.as_str().as_bytes().to_vec()));
        let mut start = start.unwrap_or_else(|| prefix.as_str().as_bytes().to_vec());
        let (mut entries, mut revision) = (Vec::new(), asked);
        loop {
            let wanted = if options.limit == 0 {
                self.range_chunk
            } else {
                options.limit - entries.len()
            };
            let chunk = self
                .chunk(start, prefix, revision, wanted.min(self.range_chunk))
                .await;
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => return Err(self.explain(error, revision).await),
            };
            entries.extend(chunk.entries);
            revision = chunk.revision;
            let full = options.limit != 0 && entries.len() >= options.limit;
            match chunk.last {
                Some(last) if chunk.left > 0 && !full => start = following(last),
                _ => {
                    return Ok(Page {
                        entries: all_readable(entries.into_iter())?,
                        revision,
                        remaining: chunk.left,
                    });
                }
            }
        }
    }

    /// An error about a revision learns its numbers.
    async fn explain(&self, error: StorageError, asked: Revision) -> StorageError {
        match error {
            StorageError::Compacted { .. } => {
                let floor = self.floor.read(|| self.remote.compacted()).await;
                let compacted = floor.unwrap_or_default();
                self.mirror.compact(compacted);
                StorageError::Compacted { asked, compacted }
            }
            other => other,
        }
    }
}

/// Answer to one request of a range.
struct Chunk {
    /// With the errors of values that cannot be read.
    entries: Vec<Result<Arc<Entry>, StorageError>>,
    /// Key of the last one.
    last: Option<Vec<u8>>,
    revision: Revision,
    /// Keys that follow.
    left: u64,
}

/// The first key after this one.
fn following(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}
