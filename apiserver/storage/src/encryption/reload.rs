//! Configurations, and one that takes another's place while the server runs.

use super::config::EncryptionConfiguration;
use super::kms::{Observers, Plugin};
use super::plugins::health_of;
use super::transformer::Transformers;
use super::values::UndecryptedValues;
use super::{Current, Encryption, EncryptionConfigError, hash_of, validation};
use crate::StorageError;
use machinery_runtime::{Runtime, Scope};
use std::path::Path;
use std::sync::Arc;

/// Placeholder for the content of a file that could not be read.
const UNREADABLE: &str = "unreadable";

impl Encryption {
    /// Replaces the configuration when the bytes are others than before; whether they were. An error leaves it as it is.
    pub fn reload(&self, path: &Path, bytes: &[u8]) -> Result<bool, EncryptionConfigError> {
        if self.is_in_use(bytes) {
            return Ok(false);
        }
        let loaded = Current::of(&self.runtime, &self.observers, (path, bytes));
        let loaded = loaded.and_then(Current::if_healthy);
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
        let next = Self::observed(
            &self.runtime,
            self.names.clone(),
            self.observers.clone(),
            (path, bytes),
        );
        let next = next.and_then(|next| next.with_plugins_that_decrypt(&self.current.read().plugins));
        let opens_writes = next.as_ref().is_ok_and(|next| self.writes_are_opened_by(next));
        let while_nothing_is_sealed = (!opens_writes).then(|| self.gate.write());
        let loaded = next.and_then(|next| next.without_loss(lost));
        let _replacing = while_nothing_is_sealed.unwrap_or_else(|| self.gate.write());
        self.settle(bytes, loaded)
    }

    /// Counts a reload that could not read the file; reports whether the one before could.
    pub fn reload_failed(&self) -> bool {
        self.measures.reloaded(false, self.runtime.now().as_second());
        self.is_first_refusal(UNREADABLE)
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

    /// The same, unless one of its plugins has taken another's place and does not know its key.
    fn with_plugins_that_decrypt(self, before: &[Arc<Plugin>]) -> Result<Self, EncryptionConfigError> {
        let current = self.current.read();
        let unknown = current.plugins.iter().find(|plugin| {
            let mut replaced = before.iter().filter(|own| own.prefix() == plugin.prefix());
            !replaced.all(|own| plugin.decrypts_writes_of(own))
        });
        if let Some(plugin) = unknown {
            return Err(EncryptionConfigError(format!(
                "the plugin of {} does not decrypt the key that values are written with now: the configuration in use stays",
                plugin.prefix()
            )));
        }
        drop(current);
        Ok(self)
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
            return self.current.into_inner().if_healthy();
        }
        Err(EncryptionConfigError(format!(
            "{}: the configuration in use stays; keep the old key behind the new one until everything is rewritten",
            lost.described("could no longer be decrypted")
        )))
    }
}

impl Current {
    pub(super) fn of(
        runtime: &Runtime,
        observers: &Observers,
        (path, bytes): (&Path, &[u8]),
    ) -> Result<Self, EncryptionConfigError> {
        let config = EncryptionConfiguration::parse(path, bytes)?;
        validation::validate(&config)?;
        let (mut scope, mut plugins) = (None, Vec::new());
        let transformers = Transformers::build(&config, |own| {
            let scope: &Scope = scope.get_or_insert_with(|| runtime.child_scope());
            let plugin = Plugin::start(own, scope.runtime(), observers.clone());
            plugins.push(Arc::clone(&plugin));
            plugin
        })?;
        plugins.iter().for_each(|plugin| plugin.wait_until_requested());
        Ok(Self {
            transformers: Arc::new(transformers),
            plugins,
            _scope: scope,
            hash: hash_of(bytes),
        })
    }

    /// The same, unless one of its plugins is ill: what is in use stays then, as upstream's.
    fn if_healthy(self) -> Result<Self, EncryptionConfigError> {
        let ill =
            |why: String| EncryptionConfigError(format!("health check for new transformers failed: {why}"));
        health_of(&self.plugins).map_err(ill).map(|()| self)
    }
}
