//! Plugins of a configuration: whether they can write, keys that they have to decrypt, and their health.

use super::Encryption;
use super::kms::Plugin;
use super::transformer::{Transformer, aggregate};
use super::values::{Named, resource_text};
use crate::{Key, StorageError};
use std::sync::Arc;
use tokio::sync::watch;

/// Plugins, and values of theirs.
type OfPlugins<'a> = Vec<(Arc<Plugin>, Vec<&'a [u8]>)>;

impl Encryption {
    /// Reports why a value cannot be written at a place now, if it cannot: a plugin has not given a seed yet, or has been silent for
    /// too long since.
    pub(crate) fn check_write(&self, key: &Key) -> Result<(), String> {
        let transformers = Arc::clone(&self.current.read().transformers);
        let (group, resource) = self.names.of(key);
        let transformer = transformers.of(group, resource);
        let plugin = transformer.and_then(Transformer::writing_plugin);
        let checked = plugin.map_or(Ok(()), |plugin| plugin.can_seal());
        if checked.is_err() {
            let prefix = plugin.map(|plugin| plugin.prefix().to_owned());
            self.measures
                .sealed(&resource_text(group, resource), prefix.unwrap_or_default(), None);
        }
        checked
    }

    /// Reports whether [`Encryption::seal`] works for every value, from now on: each plugin has given a seed.
    ///
    /// Errors: [`StorageError::Unavailable`].
    pub(crate) fn check_seals(&self) -> Result<(), StorageError> {
        let current = self.current.read();
        match current.plugins.iter().all(|plugin| plugin.has_seed()) {
            true => Ok(()),
            false => Err(StorageError::Unavailable(
                "a KMS plugin has not given its key yet".to_owned(),
            )),
        }
    }

    /// Waits until plugins have decrypted the keys of stored values, or their time is over.
    pub(crate) async fn prepare(&self, values: &[(Key, &[u8])]) {
        let values = values.iter().map(|(key, stored)| (self.names.of(key), *stored));
        prepare(self.by_plugin(values)).await;
    }

    /// The same for values of a resource.
    pub(crate) async fn prepare_as(&self, of: Named<'_>, values: &[&[u8]]) {
        let values = values.iter().map(|stored| (of, *stored));
        prepare(self.by_plugin(values)).await;
    }

    /// Stored values without their prefix, of those that a plugin wrote.
    fn by_plugin<'a>(&self, values: impl Iterator<Item = (Named<'a>, &'a [u8])>) -> OfPlugins<'a> {
        let transformers = Arc::clone(&self.current.read().transformers);
        let mut of_plugins = OfPlugins::new();
        for ((group, resource), stored) in values {
            let transformer = transformers.of(group, resource);
            let Some((plugin, stored)) = transformer.and_then(|own| own.plugin_of(stored)) else {
                continue;
            };
            match of_plugins.iter_mut().find(|(own, _)| Arc::ptr_eq(own, plugin)) {
                Some((_, of_plugin)) => of_plugin.push(stored),
                None => of_plugins.push((Arc::clone(plugin), vec![stored])),
            }
        }
        of_plugins
    }

    /// Counts changes of the keys that plugins write with, and keys that they have decrypted: what was missed may be readable.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.observers.changes.subscribe()
    }

    pub(crate) fn has_plugins(&self) -> bool {
        !self.current.read().plugins.is_empty()
    }

    /// Requests the health of plugins before their interval is over.
    pub fn ask_plugins(&self) {
        self.current.read().plugins.iter().for_each(|plugin| plugin.ask());
    }

    /// The health of all plugins, in upstream's words; `None` without plugins.
    pub fn plugins_health(&self) -> Option<Result<(), String>> {
        let plugins = self.current.read().plugins.clone();
        (!plugins.is_empty()).then(|| health_of(&plugins))
    }
}

async fn prepare(of_plugins: OfPlugins<'_>) {
    for (plugin, stored) in of_plugins {
        plugin.prepare(&stored).await;
    }
}

pub(super) fn health_of(plugins: &[Arc<Plugin>]) -> Result<(), String> {
    let each = plugins.iter().enumerate();
    let problems: Vec<String> = each
        .filter_map(|(at, plugin)| Some(format!("kms-provider-{at}: {}", plugin.health().err()?)))
        .collect();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(aggregate(problems))
    }
}
