//! Values that all servers over one etcd share, outside of the prefix of the objects: no watch, list or request shows
//! them.
//!
//! These are keys, so they are encrypted by the rule for Secrets where the configuration has one, bound to the name
//! they lie under as an object is; without such a rule they are plain.

use super::{CHECKED_WITHIN, EtcdStorage};
use crate::encryption::{ENCRYPTED, Encryption, Named, Seal};
use crate::{Key, SharedValues, StorageError};
use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp, TxnOpResponse};

/// Prefix before the objects' own, so that clusters with different ones can share an etcd.
const BEFORE: &str = "/knarr";
const SECRETS: Named<'static> = ("", "secrets");

#[async_trait]
impl SharedValues for EtcdStorage {
    async fn agree(&self, name: &str, offered: Vec<u8>) -> Result<Vec<u8>, StorageError> {
        let key = self.shared_key(name)?;
        let transaction = Txn::new()
            .when([Compare::version(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.as_str(), self.sealed(&key, &offered)?, None)])
            .or_else([TxnOp::get(key.as_str(), None)]);
        let answer = self.remote.waiting(self.remote.kv()?.txn(transaction)).await?;
        if answer.succeeded() {
            return Ok(offered);
        }
        let found = answer.op_responses().into_iter().find_map(|response| {
            if let TxnOpResponse::Get(found) = response {
                found.kvs().first().cloned()
            } else {
                None
            }
        });
        let gone = || StorageError::Unavailable(format!("etcd has no {key} after all"));
        let found = found.ok_or_else(gone)?;
        self.reencrypt(&key, &found).await?;
        Ok(self.opened(&key, found.value())?.0)
    }

    async fn reseal(&self, name: &str) -> Result<bool, StorageError> {
        let key = self.shared_key(name)?;
        let mut kv = self.remote.kv()?;
        let answer: GetResponse = self.remote.waiting(kv.get(key.as_str(), None)).await?;
        match answer.kvs().first() {
            Some(found) => self.reencrypt(&key, found).await,
            None => Ok(false),
        }
    }

    async fn note_keys(&self) -> Result<(), StorageError> {
        *self.shared.lock() = None;
        let mut kv = self.remote.kv()?;
        let below = GetOptions::new().with_prefix();
        let late = || StorageError::Unreachable {
            cause: format!("no answer in {CHECKED_WITHIN:?}"),
        };
        let asked = self
            .remote
            .waiting(kv.get(format!("{BEFORE}{}", self.mirror.prefix), Some(below)));
        let answer: GetResponse = self.within(CHECKED_WITHIN, asked).await.ok_or_else(late)??;
        self.prepare_shared(answer.kvs()).await;
        let read = answer.kvs().iter().map(|own| {
            let key = Key::parse(&String::from_utf8_lossy(own.key()))?;
            Ok((key, own.value().to_vec()))
        });
        *self.shared.lock() = Some(read.collect::<Result<_, StorageError>>()?);
        Ok(())
    }
}

impl EtcdStorage {
    fn shared_key(&self, name: &str) -> Result<Key, StorageError> {
        Key::parse(&format!("{BEFORE}{}{name}", self.mirror.prefix))
    }

    /// Shared values that this configuration opens and another one does not; `None` where they are not read.
    pub(super) fn shared_lost_by(&self, other: &Encryption) -> Option<Vec<Key>> {
        let own = self.remote.encryption.as_ref();
        let opens =
            |encryption: &Encryption, key: &Key, stored: &[u8]| encryption.can_open_as(SECRETS, key, stored);
        let shared = self.shared.lock();
        let lost = shared.as_ref()?.iter().filter(|(key, stored)| {
            own.is_some_and(|own| opens(own, key, stored)) && !opens(other, key, stored)
        });
        Some(lost.map(|(key, _)| key.clone()).collect())
    }

    /// Reports whether shared values, as they were last read, are not encrypted with the key that writes Secrets now.
    pub(super) fn is_shared_behind(&self) -> bool {
        let current = self.current_seal();
        let shared = self.shared.lock();
        let mut values = shared.iter().flatten();
        values.any(|(key, stored)| self.opened(key, stored).map_or(true, |(_, seal)| seal != current))
    }

    fn current_seal(&self) -> Seal {
        let encryption = self.remote.encryption.as_ref();
        encryption.map_or(Seal::default(), |own| own.current_seal_of(SECRETS))
    }

    /// Takes up a value that this server has written, until all are read again.
    fn note_value(&self, key: &Key, stored: Vec<u8>) {
        if let Some(shared) = self.shared.lock().as_mut() {
            let known = shared.iter_mut().find(|(own, _)| own == key);
            known.into_iter().for_each(|own| own.1.clone_from(&stored));
        }
    }

    fn sealed(&self, key: &Key, plain: &[u8]) -> Result<Vec<u8>, StorageError> {
        let encryption = self.remote.encryption.as_ref();
        let sealed = encryption.map_or(Ok(None), |own| own.seal_as(SECRETS, key, plain));
        let sealed = sealed.map_err(|cause| StorageError::NotSealed { cause })?;
        Ok(sealed.map_or_else(|| plain.to_vec(), |(sealed, _)| sealed))
    }

    /// Has the keys of shared values decrypted.
    async fn prepare_shared(&self, values: &[KeyValue]) {
        if let Some(encryption) = &self.remote.encryption {
            let values: Vec<&[u8]> = values.iter().map(KeyValue::value).collect();
            encryption.prepare_as(SECRETS, &values).await;
        }
    }

    fn opened(&self, key: &Key, stored: &[u8]) -> Result<(Vec<u8>, Seal), StorageError> {
        let sealed = |cause: &str| StorageError::Sealed {
            key: key.clone(),
            cause: cause.to_owned(),
        };
        match &self.remote.encryption {
            Some(encryption) => encryption
                .open_as(SECRETS, key, stored)
                .map_err(|cause| sealed(&cause)),
            None if stored.starts_with(ENCRYPTED) => Err(sealed(
                "it is encrypted: --encryption-provider-config must have the key",
            )),
            None => Ok((stored.to_vec(), Seal::default())),
        }
    }

    /// Writes a value with the key that writes now, unless it was written with it or another server is faster. Reports
    /// whether this server did.
    async fn reencrypt(&self, key: &Key, found: &KeyValue) -> Result<bool, StorageError> {
        self.prepare_shared(std::slice::from_ref(found)).await;
        let (plain, seal) = self.opened(key, found.value())?;
        if seal == self.current_seal() {
            return Ok(false);
        }
        let stored = self.sealed(key, &plain)?;
        let is_unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, found.mod_revision());
        let transaction =
            Txn::new()
                .when([is_unchanged])
                .and_then([TxnOp::put(key.as_str(), stored.clone(), None)]);
        let answer = self.remote.waiting(self.remote.kv()?.txn(transaction)).await?;
        if answer.succeeded() {
            self.note_value(key, stored);
        }
        Ok(answer.succeeded())
    }
}
