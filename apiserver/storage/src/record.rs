//! Stored records.

use crate::Key;
use crate::encryption::{ENCRYPTED, Seal};
use bytes::Bytes;
use machinery_meta::{ObjectHeader, Revision};
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::SetOnce;

/// One object, encoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Type meta; the object up to and including the key `"resourceVersion":`; the rest. Joined with a revision between
    /// the last two they are the object in JSON. Slices of one buffer cost one allocation.
    pub parts: [Bytes; 3],
    /// Fingerprint of the schema, and of its state, in whose normal form the object is.
    pub fingerprint: u64,
    /// The parsed header, which selectors, dispatch and columns read instead of the bytes.
    pub header: Arc<ObjectHeader>,
}

/// Turns records into plain objects, as a store that is shared with others holds them, and back. The registry knows
/// the kinds, so it gives this.
pub trait RecordCodec: Send + Sync + Debug {
    /// The value to store. An error says why it cannot be.
    fn encode(&self, key: &Key, record: &Record) -> Result<Vec<u8>, String>;

    /// The record of a stored value. An error says what is wrong with it.
    fn decode(&self, key: &Key, value: &[u8]) -> Result<Record, String>;
}

/// The codec of a backend that stores plain objects. The backend is opened before the kinds are known, so the codec follows;
/// nothing is read before it.
#[derive(Debug, Default)]
pub struct CodecSlot(SetOnce<Arc<dyn RecordCodec>>);

impl CodecSlot {
    /// Fills it; the first codec stays.
    pub fn fill(&self, codec: Arc<dyn RecordCodec>) {
        let _ = self.0.set(codec);
    }

    /// The codec; `None` before there is one.
    pub(crate) fn get(&self) -> Option<&dyn RecordCodec> {
        self.0.get().map(|codec| &**codec)
    }

    /// Resolves when there is a codec.
    pub(crate) async fn filled(&self) {
        self.0.wait().await;
    }
}

/// A record at its key, as of one change.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    /// The change that made it what it is.
    pub revision: Revision,
    /// The change that created the object.
    pub created: Revision,
    /// Time of expiry, in seconds since 1970; `u64::MAX` if only the backend knows it (etcd).
    pub expires: Option<u64>,
    pub record: Record,
    /// The key that the stored value is encrypted with.
    pub seal: Seal,
}

impl Record {
    /// Bytes of the three parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// Reports whether it is an encrypted value that no key decrypted.
    pub fn is_sealed(&self) -> bool {
        let [first, second, third] = &self.parts;
        second.is_empty() && third.is_empty() && first.starts_with(ENCRYPTED)
    }

    /// Takes a decrypted record for the one at a key. `secretbox` and `aescbc` bind no value to its key: a writer of etcd could put an
    /// object of one namespace where readers of another one find it.
    ///
    /// # Errors
    /// The record is that of another object.
    pub(crate) fn of_key(self, key: &Key) -> Result<Self, String> {
        let own = &self.header.key;
        let mut parts = key.as_str().rsplit('/');
        let is_its = own.name.is_empty()
            || parts.next() == Some(&own.name)
                && (own.namespace.is_empty() || parts.next() == Some(&own.namespace));
        match is_its {
            true => Ok(self),
            false => Err(format!("the encrypted value is that of {own}")),
        }
    }

    /// A record in the place of a value that cannot be read here.
    pub(crate) fn unreadable() -> Self {
        Self {
            parts: [Bytes::from_static(ENCRYPTED), Bytes::new(), Bytes::new()],
            fingerprint: 0,
            header: Arc::new(ObjectHeader::default()),
        }
    }

    /// Returns about how much memory an entry of it takes: its bytes and what stands beside them.
    pub fn footprint(&self, key: &Key) -> usize {
        /// The entry itself, its place in the tree, the change that made it, and what the allocator rounds up to.
        const BESIDE: usize = 512;
        self.len() + self.header.footprint() + key.as_str().len() + BESIDE
    }

    /// Reports whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Entry {
    /// The same change with its record in another form.
    pub(crate) fn with_record(&self, record: Record) -> Self {
        Self {
            key: self.key.clone(),
            revision: self.revision,
            created: self.created,
            expires: self.expires,
            record,
            seal: self.seal,
        }
    }

    /// Reports whether both are versions of one object: one that was deleted and created again is another.
    pub fn is_same_object(&self, other: &Self) -> bool {
        self.key == other.key && self.created == other.created
    }

    /// Returns about how much memory it takes: its bytes and what stands beside them.
    pub fn footprint(&self) -> usize {
        self.record.footprint(&self.key)
    }
}
