//! The connection, and what its answers mean.

use crate::encryption::{ENCRYPTED, Encryption, Seal};
use crate::{CodecSlot, Entry, Key, Record, RecordCodec, StorageError};
use etcd_client::{Client, GetOptions, KeyValue, KvClient, ResponseHeader};
use machinery_meta::Revision;
use machinery_runtime::CancellationToken;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A connection that ends with its storage.
#[derive(Clone)]
pub(super) struct Remote {
    pub(super) client: Client,
    pub(super) codec: Arc<CodecSlot>,
    /// The floor as it was found last; it only rises.
    floor: Arc<AtomicU64>,
    closed: CancellationToken,
    pub(super) encryption: Option<Arc<Encryption>>,
}

/// Answers may be as large as gRPC allows, as in upstream's client; requests bound what they hold.
const MAX_ANSWER_BYTES: usize = i32::MAX as usize;
/// No key begins with a zero byte, so nothing is ever found here.
const NOWHERE: &[u8] = &[0];
/// The end of an entry with a lease: etcd alone knows when that is.
pub(super) const LEASED: u64 = u64::MAX;
/// First revision of an empty etcd.
const FIRST_REVISION: u64 = 1;

impl Remote {
    pub(super) fn new(
        client: Client,
        closed: CancellationToken,
        encryption: Option<Arc<Encryption>>,
    ) -> Self {
        Self {
            client,
            codec: Arc::default(),
            floor: Arc::new(AtomicU64::new(FIRST_REVISION)),
            closed,
            encryption,
        }
    }

    pub(super) fn codec(&self) -> Result<&dyn RecordCodec, StorageError> {
        let missing = || StorageError::Unavailable("the form of values is not set yet".to_owned());
        self.codec.get().ok_or_else(missing)
    }

    /// A stored value as an entry.
    pub(super) fn entry(&self, kv: &KeyValue) -> Result<Arc<Entry>, StorageError> {
        let key = key(kv)?;
        let (record, seal) = self.record(&key, kv.value())?;
        let (revision, created) = (unsigned(kv.mod_revision()), unsigned(kv.create_revision()));
        Ok(Arc::new(Entry {
            key,
            revision,
            created,
            expires: (kv.lease() != 0).then_some(LEASED),
            record,
            seal,
        }))
    }

    /// The record of a stored value, and the key it is encrypted with.
    fn record(&self, key: &Key, stored: &[u8]) -> Result<(Record, Seal), StorageError> {
        let unreadable = |cause| StorageError::Unreadable {
            key: key.to_string(),
            cause,
        };
        let Some(encryption) = &self.encryption else {
            if stored.starts_with(ENCRYPTED) {
                return Err(StorageError::Sealed {
                    key: key.clone(),
                    cause: "identity transformer tried to read encrypted data".to_owned(),
                });
            }
            let record = self.codec()?.decode(key, stored).map_err(unreadable)?;
            return Ok((record, Seal::default()));
        };
        let sealed = |cause| StorageError::Sealed {
            key: key.clone(),
            cause,
        };
        let (plain, seal) = encryption.open(key, stored).map_err(sealed)?;
        let record = self.codec()?.decode(key, &plain).map_err(unreadable)?;
        match seal == Seal::default() {
            true => Ok((record, seal)),
            false => Ok((record.of_key(key).map_err(sealed)?, seal)),
        }
    }

    /// Waits until plugins have decrypted the keys of these values, so that [`Remote::entry`] finds them; only as long as a plugin may
    /// take.
    pub(super) async fn prepare(&self, values: Vec<&KeyValue>) {
        let Some(encryption) = self.encryption.as_ref().filter(|own| own.has_plugins()) else {
            return;
        };
        let keyed: Vec<(Key, &[u8])> = values
            .into_iter()
            .filter(|kv| kv.value().starts_with(ENCRYPTED))
            .filter_map(|kv| Some((key(kv).ok()?, kv.value())))
            .collect();
        encryption.prepare(&keyed).await;
    }

    /// The stored form of a value.
    pub(super) fn sealed(&self, key: &Key, value: Vec<u8>) -> Result<Vec<u8>, StorageError> {
        let Some(encryption) = &self.encryption else {
            return Ok(value);
        };
        let checked = encryption.check_write(key);
        let sealed = checked.and_then(|()| encryption.seal(key, &value));
        let sealed = sealed.map_err(|cause| StorageError::NotSealed { cause })?;
        Ok(sealed.map_or(value, |(stored, _)| stored))
    }

    /// The key that values at this place are encrypted with now.
    pub(super) fn current_seal(&self, key: &Key) -> Seal {
        let encryption = self.encryption.as_ref();
        encryption.map_or(Seal::default(), |encryption| encryption.current_seal(key))
    }

    pub(super) fn kv(&self) -> Result<KvClient, StorageError> {
        if self.closed.is_cancelled() {
            return Err(closed());
        }
        Ok(self
            .client
            .kv_client()
            .max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    pub(super) fn watch_client(&self) -> etcd_client::WatchClient {
        self.client
            .watch_client()
            .max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// The answer, unless the storage is closed first.
    pub(super) async fn waiting<T>(
        &self,
        answer: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, StorageError> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(closed()),
            answer = answer => answer.map_err(failed),
        }
    }

    /// Awaits a future, unless the storage is closed first.
    pub(super) async fn unless_closed<T>(&self, wait: impl Future<Output = T>) -> Result<T, StorageError> {
        self.waiting(async { Ok(wait.await) }).await
    }

    /// The revision of now, agreed with the other members.
    pub(super) async fn current(&self) -> Result<Revision, StorageError> {
        Ok(self.now().await?.0)
    }

    /// The revision of now, and whose it is.
    pub(super) async fn now(&self) -> Result<(Revision, u64), StorageError> {
        let answer = self.waiting(self.kv()?.get(NOWHERE, None)).await?;
        let header = answer.header();
        Ok((revision(header), header.map_or(0, ResponseHeader::cluster_id)))
    }

    /// etcd has another history now.
    pub(super) fn forget_floor(&self) {
        self.floor.store(FIRST_REVISION, Ordering::Relaxed);
    }

    /// The floor. No request returns it, and a member that is behind may not know it yet; but every linearizable read
    /// of an older revision is refused, so halving finds it.
    pub(super) async fn compacted(&self) -> Result<Revision, StorageError> {
        let known = self.floor.load(Ordering::Relaxed);
        if self.is_kept(Revision(known)).await? {
            return Ok(Revision(known));
        }
        let (mut gone, mut kept) = (known, self.current().await?.0);
        while gone + 1 < kept {
            let middle = gone + (kept - gone) / 2;
            if self.is_kept(Revision(middle)).await? {
                kept = middle;
            } else {
                gone = middle;
            }
        }
        self.floor.fetch_max(kept, Ordering::Relaxed);
        Ok(Revision(kept))
    }

    /// Reports whether a revision can still be read.
    async fn is_kept(&self, revision: Revision) -> Result<bool, StorageError> {
        let options = GetOptions::new().with_revision(number(revision));
        match self.waiting(self.kv()?.get(NOWHERE, Some(options))).await {
            Ok(_) => Ok(true),
            Err(StorageError::Compacted { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Refuses whatever comes from now on, and ends what waits.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("codec", &self.codec)
            .finish_non_exhaustive()
    }
}

fn closed() -> StorageError {
    StorageError::Closed
}

/// The storage error of a client's error. Callers that know the revisions fill them in.
pub(super) fn failed(error: etcd_client::Error) -> StorageError {
    let text = error.to_string();
    if text.contains("required revision has been compacted") {
        StorageError::Compacted {
            asked: Revision::ZERO,
            compacted: Revision::ZERO,
        }
    } else if text.contains("database space exceeded") {
        StorageError::QuotaExceeded
    } else if text.contains("request is too large") || text.contains("too many operations") {
        let what = "a request to etcd".to_owned();
        StorageError::TooLarge {
            what,
            size: 0,
            limit: 0,
        }
    } else {
        tracing::debug!(cause = %text, "etcd has not answered");
        match error {
            // etcd's own words, such as a leader that is missing.
            etcd_client::Error::GRpcStatus(status) if status.message().starts_with("etcdserver: ") => {
                StorageError::Unavailable(status.message().to_owned())
            }
            _ => StorageError::Unreachable { cause: text },
        }
    }
}

pub(super) fn key(kv: &KeyValue) -> Result<Key, StorageError> {
    Key::parse(&String::from_utf8_lossy(kv.key()))
}

pub(super) fn revision(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(Revision::ZERO, |header| unsigned(header.revision()))
}

pub(super) fn unsigned(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
