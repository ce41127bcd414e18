//! Encryption at rest, by upstream's `EncryptionConfiguration`.
//!
//! [`config`] reads and [`validation`] checks the file, [`provider`] has the ciphers, [`transformer`] chooses among those
//! of one resource: the first one writes, all of them read. [`Encryption`] is what a backend holds: it knows the resource
//! of a key, and its configuration is replaced while the server runs. Stored values are upstream's, byte for byte: a
//! prefix that names provider and key, then the provider's own bytes, bound to the path of the object.
//!
//! Never: a secret in an error, a log line or a `Debug`; plain text where a key is missing.

mod config;
mod measures;
mod provider;
mod transformer;
mod validation;

pub use measures::{EncryptionMeasures, Operation, TRANSFORMATION_BOUNDS};

use crate::{Key, StorageError};
use config::EncryptionConfiguration;
use machinery_runtime::Runtime;
use measures::Measures;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use transformer::{Transformer, Transformers};

/// Placeholder for the content of a file that could not be read.
const UNREADABLE: &str = "unreadable";

/// The prefix of every encrypted value.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The key with which a value is encrypted; the default is none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Seal(pub(crate) u64);

/// Stored values that no key decrypts, or that none would any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UndecryptedValues {
    pub count: usize,
    /// By the order of keys.
    pub first: Option<Key>,
}

/// Group and plural of a resource.
pub(crate) type Named<'a> = (&'a str, &'a str);

/// Group and plural of the resources whose objects lie below a prefix.
#[derive(Debug, Clone, Default)]
pub struct ResourceNames(HashMap<Box<str>, (Box<str>, Box<str>)>);

/// The encryption of a store. Its configuration can be replaced at any time.
pub struct Encryption {
    runtime: Runtime,
    names: ResourceNames,
    current: RwLock<Current>,
    /// Held for reading where a value is sealed until its key is noted, and for writing while `current` is replaced.
    gate: RwLock<()>,
    measures: Measures,
    /// SHA-256 of the last content that was refused; empty where the last one was taken.
    refused: Mutex<String>,
}

struct Current {
    transformers: Arc<Transformers>,
    /// SHA-256 of the file.
    hash: String,
}

/// The reason for which a configuration is refused, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncryptionConfigError(pub(crate) String);

impl UndecryptedValues {
    /// Undecrypted values at these keys, which are in order.
    pub(crate) fn of<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Self {
        let mut keys = keys.into_iter();
        let Some(first) = keys.next() else {
            return Self::default();
        };
        Self {
            count: 1 + keys.count(),
            first: Some(first.clone()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A sentence of them, for logs: it names a key.
    pub fn described(&self, what: &str) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        let first = self.first.as_ref().map(|key| format!(", {key} first"));
        format!(
            "{} stored value{plural} {what}{}",
            self.count,
            first.unwrap_or_default()
        )
    }
}

impl ResourceNames {
    /// The map from prefixes (`/registry/pods/`), groups and plurals.
    pub fn new(rows: impl IntoIterator<Item = (String, String, String)>) -> Self {
        let named = |(prefix, group, plural): (String, String, String)| {
            (prefix.into(), (group.into(), plural.into()))
        };
        Self(rows.into_iter().map(named).collect())
    }

    /// Group and resource of the object at a key. A key without a known prefix is of a custom resource, whose keys name both, or
    /// one of upstream's own that has no address.
    fn of<'a>(&'a self, key: &'a Key) -> (&'a str, &'a str) {
        let text = key.as_str();
        let prefixes = text.match_indices('/').map(|(at, _)| &text[..=at]);
        if let Some((group, plural)) = prefixes.rev().find_map(|prefix| self.0.get(prefix)) {
            return (group, plural);
        }
        let mut parts = text.split('/').skip(2);
        match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
            ("ranges", "serviceips") => ("", "serviceipallocations"),
            ("ranges", "servicenodeports") => ("", "servicenodeportallocations"),
            ("masterleases", _) => ("", "apiServerIPInfo"),
            (group, plural) if group.contains('.') => (group, plural),
            (plural, _) => ("", plural),
        }
    }
}

impl Encryption {
    /// Builds the encryption from the bytes of a configuration file at `path`.
    pub fn new(
        runtime: &Runtime,
        names: ResourceNames,
        path: &Path,
        bytes: &[u8],
    ) -> Result<Self, EncryptionConfigError> {
        Ok(Self {
            runtime: runtime.clone(),
            names,
            current: RwLock::new(Current::of(path, bytes)?),
            gate: RwLock::default(),
            measures: Measures::default(),
            refused: Mutex::default(),
        })
    }

    /// Replaces the configuration when the bytes are others than before; whether they were. An error leaves it as it is.
    pub fn reload(&self, path: &Path, bytes: &[u8]) -> Result<bool, EncryptionConfigError> {
        if self.is_in_use(bytes) {
            return Ok(false);
        }
        let loaded = Current::of(path, bytes);
        let _replacing = self.gate.write();
        self.settle(bytes, loaded)
    }

    /// The same, unless stored values would be lost: `lost` finds those that the new configuration does not decrypt.
    ///
    /// Values that are sealed meanwhile take the keys that write now. A configuration that has none of them can only be
    /// judged while nothing is sealed, so writers wait for `lost` then; it must not seal anything itself.
    pub fn reload_unless_lost(
        &self,
        path: &Path,
        bytes: &[u8],
        lost: impl FnOnce(&Self) -> Result<UndecryptedValues, StorageError>,
    ) -> Result<bool, EncryptionConfigError> {
        if self.is_in_use(bytes) {
            return Ok(false);
        }
        let next = Self::new(&self.runtime, self.names.clone(), path, bytes);
        let opens_writes = next.as_ref().is_ok_and(|next| self.writes_are_opened_by(next));
        let while_nothing_is_sealed = (!opens_writes).then(|| self.gate.write());
        let loaded = next.and_then(|next| next.without_loss(lost));
        let _replacing = while_nothing_is_sealed.unwrap_or_else(|| self.gate.write());
        self.settle(bytes, loaded)
    }

    /// Keeps the configuration as it is until the guard is dropped.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read()
    }

    /// Reports whether another configuration opens everything that this one writes.
    fn writes_are_opened_by(&self, other: &Self) -> bool {
        let (own, other) = (self.current.read(), other.current.read());
        own.transformers.writes_are_opened_by(&other.transformers)
    }

    /// Reports whether this is the content in use; one that was refused before is over then.
    fn is_in_use(&self, bytes: &[u8]) -> bool {
        let is_in_use = hash_of(bytes) == self.current.read().hash;
        if is_in_use {
            self.refused.lock().clear();
        }
        is_in_use
    }

    /// Takes a configuration into use. Each refusal is counted, as upstream counts it, and is an error once for each content:
    /// each later load of the same file finds the same.
    fn settle(
        &self,
        bytes: &[u8],
        loaded: Result<Current, EncryptionConfigError>,
    ) -> Result<bool, EncryptionConfigError> {
        self.measures
            .reloaded(loaded.is_ok(), self.runtime.now().as_second());
        if loaded.is_err() && !self.is_first_refusal(&hash_of(bytes)) {
            return Ok(false);
        }
        *self.current.write() = loaded?;
        self.refused.lock().clear();
        Ok(true)
    }

    /// Notes a content that was refused; reports whether it is another than the last one.
    fn is_first_refusal(&self, content: &str) -> bool {
        let mut refused = self.refused.lock();
        let is_first = *refused != content;
        content.clone_into(&mut refused);
        is_first
    }

    fn without_loss(
        self,
        lost: impl FnOnce(&Self) -> Result<UndecryptedValues, StorageError>,
    ) -> Result<Current, EncryptionConfigError> {
        let unknown = |error: StorageError| {
            let why = format!(
                "{error}: the configuration in use stays until it is known what is encrypted with its keys"
            );
            EncryptionConfigError(why)
        };
        let lost = lost(&self).map_err(unknown)?;
        if lost.is_empty() {
            return Ok(self.current.into_inner());
        }
        Err(EncryptionConfigError(format!(
            "{}: the configuration in use stays; keep the old key behind the new one until everything is rewritten",
            lost.described("could no longer be decrypted")
        )))
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
        transformer.open(key, stored).1.is_ok()
    }

    /// Counts a reload that could not read the file; reports whether the one before could.
    pub fn reload_failed(&self) -> bool {
        self.measures.reloaded(false, self.runtime.now().as_second());
        self.is_first_refusal(UNREADABLE)
    }

    /// The stored form of a value, and the key it is encrypted with; `None` where it stays plain.
    pub fn seal(&self, key: &Key, plain: &[u8]) -> Option<(Vec<u8>, Seal)> {
        self.seal_as(self.names.of(key), key, plain)
    }

    /// The same for a value that is no object of the API, by the rule of a resource.
    pub(crate) fn seal_as(&self, of: Named<'_>, key: &Key, plain: &[u8]) -> Option<(Vec<u8>, Seal)> {
        let transformers = Arc::clone(&self.current.read().transformers);
        let (group, resource) = of;
        let transformer = transformers.of(group, resource)?;
        let begun = self.runtime.monotonic();
        let sealed = transformer.seal(key, plain);
        let took = self.runtime.monotonic().saturating_sub(begun);
        let (prefixes, sealed) = sealed;
        for prefix in prefixes {
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
        let (tried, opened) = transformer.open(key, stored);
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
        self.measures.read(self.current.read().hash.clone())
    }
}

impl Current {
    fn of(path: &Path, bytes: &[u8]) -> Result<Self, EncryptionConfigError> {
        let config = EncryptionConfiguration::parse(path, bytes)?;
        validation::validate(&config)?;
        Ok(Self {
            transformers: Arc::new(Transformers::build(&config)?),
            hash: hash_of(bytes),
        })
    }
}

fn hash_of(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A resource as `schema.GroupResource` writes it.
fn resource_text(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number is made from a secret.
        f.write_str(if *self == Self::default() {
            "Plain"
        } else {
            "Sealed"
        })
    }
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
