//! Encryption at rest, by upstream's `EncryptionConfiguration`.
//!
//! [`config`] reads and [`validation`] checks the file, [`provider`] has the ciphers, [`transformer`] chooses among those
//! of one resource: the first one writes, all of them read. [`Encryption`] is what a backend holds: it knows the resource
//! of a key ([`values`]), and its configuration is replaced while the server runs ([`reload`]). [`kms`] has keys from plugins, and [`plugins`]
//! says what they can do now. Stored values are upstream's, byte for byte: a
//! prefix that names provider and key, then the provider's own bytes, bound to the path of the object.
//!
//! Never: a secret in an error, a log line or a `Debug`; plain text where a key is missing.

mod config;
mod kms;
mod measures;
mod plugins;
mod provider;
mod reload;
mod transformer;
mod validation;
mod values;

pub use kms::{CALL_BOUNDS, CallDurations, KeyUse, KmsCounts};
pub use measures::{EncryptionMeasures, Operation, TRANSFORMATION_BOUNDS};
pub(crate) use values::Named;
pub use values::{ResourceNames, Seal, UndecryptedValues};

use crate::Key;
use kms::{Observers, Plugin};
use machinery_runtime::{Runtime, Scope};
use measures::Measures;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use transformer::{SealedOrPlain, Transformer, Transformers};
use values::resource_text;

/// The prefix of every encrypted value.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The encryption of a store. Its configuration can be replaced at any time.
pub struct Encryption {
    runtime: Runtime,
    names: ResourceNames,
    current: RwLock<Current>,
    /// Held for reading where a value is sealed until its key is noted, and for writing while `current` is replaced.
    gate: RwLock<()>,
    measures: Measures,
    observers: Observers,
    /// Threads may wait for plugins: those that open a storage, or look at a configuration before it is used.
    may_block: AtomicBool,
    /// SHA-256 of the last content that was refused; empty where the last one was taken.
    refused: Mutex<String>,
}

struct Current {
    transformers: Arc<Transformers>,
    plugins: Vec<Arc<Plugin>>,
    /// Ends the plugins' tasks.
    _scope: Option<Scope>,
    /// SHA-256 of the file.
    hash: String,
}

/// The reason for which a configuration is refused, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionConfigError(pub(crate) String);

impl Encryption {
    /// Builds the encryption from the bytes of a configuration file at `path`. With plugins in it the thread waits until each of them
    /// has answered once, or their time is over.
    pub fn new(
        runtime: &Runtime,
        names: ResourceNames,
        path: &Path,
        bytes: &[u8],
    ) -> Result<Self, EncryptionConfigError> {
        let observers = Observers {
            measures: Arc::default(),
            changes: Arc::default(),
        };
        Self::observed(runtime, names, observers, (path, bytes))
    }

    fn observed(
        runtime: &Runtime,
        names: ResourceNames,
        observers: Observers,
        file: (&Path, &[u8]),
    ) -> Result<Self, EncryptionConfigError> {
        Ok(Self {
            runtime: runtime.clone(),
            names,
            current: RwLock::new(Current::of(runtime, &observers, file)?),
            gate: RwLock::default(),
            measures: Measures::default(),
            observers,
            may_block: AtomicBool::new(true),
            refused: Mutex::default(),
        })
    }

    /// From now on no thread waits for a plugin: a value whose key is not decrypted yet is an error at first.
    pub(crate) fn block_no_more(&self) {
        self.may_block.store(false, Ordering::Relaxed);
    }

    /// Keeps the configuration as it is until the guard is dropped.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Group and plural of the resource of the object at a key.
    pub(crate) fn resource_of<'a>(&'a self, key: &'a Key) -> Named<'a> {
        self.names.of(key)
    }

    /// Reports whether there is the key that a value at this place was encrypted with; none is needed for a plain one where plain
    /// values are taken.
    pub(crate) fn has_key_of(&self, key: &Key, seal: Seal) -> bool {
        let transformers = Arc::clone(&self.current.read().transformers);
        let (group, resource) = self.names.of(key);
        let transformer = transformers.of(group, resource);
        transformer.map_or(seal == Seal::default(), |own| own.has(seal))
    }

    /// Reports whether a stored value can be decrypted; not counted.
    pub(crate) fn can_open(&self, key: &Key, stored: &[u8]) -> bool {
        self.can_open_as(self.names.of(key), key, stored)
    }

    /// The same for a value that is no object of the API, by the rule of a resource.
    pub(crate) fn can_open_as(&self, (group, resource): Named<'_>, key: &Key, stored: &[u8]) -> bool {
        let transformers = Arc::clone(&self.current.read().transformers);
        let identity = Transformer::identity();
        let transformer = transformers.of(group, resource).unwrap_or(&identity);
        let may_block = self.may_block.load(Ordering::Relaxed);
        transformer.open(key, stored, may_block).1.is_ok()
    }

    /// The stored form of a value, and the key it is encrypted with; `None` where it stays plain.
    ///
    /// Errors: a plugin that writes has not given its seed yet ([`Encryption::check_writes`]).
    pub fn seal(&self, key: &Key, plain: &[u8]) -> SealedOrPlain {
        self.seal_as(self.names.of(key), key, plain)
    }

    /// The same for a value that is no object of the API, by the rule of a resource.
    pub(crate) fn seal_as(&self, of: Named<'_>, key: &Key, plain: &[u8]) -> SealedOrPlain {
        let transformers = Arc::clone(&self.current.read().transformers);
        let (group, resource) = of;
        let Some(transformer) = transformers.of(group, resource) else {
            return Ok(None);
        };
        let begun = self.runtime.monotonic();
        let sealed = transformer.seal(key, plain);
        let took = self.runtime.monotonic().saturating_sub(begun);
        let (prefixes, sealed) = sealed;
        for prefix in prefixes {
            let took = sealed.is_ok().then_some(took);
            self.measures
                .sealed(&resource_text(group, resource), prefix, took);
        }
        sealed
    }

    /// The value of a stored form, and the key it was encrypted with.
    ///
    /// Errors: upstream's sentence, where no key fits or a resource takes no plain values.
    pub fn open(&self, key: &Key, stored: &[u8]) -> Result<(Vec<u8>, Seal), String> {
        self.open_as(self.names.of(key), key, stored)
    }

    /// The same for a value that is no object of the API, by the rule of a resource.
    pub(crate) fn open_as(&self, of: Named<'_>, key: &Key, stored: &[u8]) -> Result<(Vec<u8>, Seal), String> {
        let transformers = Arc::clone(&self.current.read().transformers);
        let (group, resource) = of;
        let identity = Transformer::identity();
        let transformer = transformers.of(group, resource).unwrap_or(&identity);
        let begun = self.runtime.monotonic();
        let may_block = self.may_block.load(Ordering::Relaxed);
        let (tried, opened) = transformer.open(key, stored, may_block);
        let took = self.runtime.monotonic().saturating_sub(begun);
        for (prefix, ok) in tried {
            self.measures
                .opened(&resource_text(group, resource), prefix, ok.then_some(took));
        }
        opened
    }

    /// The key that a value at this place would be encrypted with now.
    pub fn current_seal(&self, key: &Key) -> Seal {
        self.current_seal_of(self.names.of(key))
    }

    /// The key that a value of a resource would be encrypted with now.
    pub(crate) fn current_seal_of(&self, (group, resource): Named<'_>) -> Seal {
        let transformers = Arc::clone(&self.current.read().transformers);
        let transformer = transformers.of(group, resource);
        transformer.map_or(Seal::default(), Transformer::seal_of_writes)
    }

    /// The counters, for metrics.
    pub fn measures(&self) -> EncryptionMeasures {
        let kms = self.observers.measures.read();
        self.measures.read(self.current.read().hash.clone(), kms)
    }
}

fn hash_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.current.read().hash.clone();
        f.debug_struct("Encryption")
            .field("hash", &hash)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
