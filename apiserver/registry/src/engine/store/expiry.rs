//! Times to live of objects that an earlier version stored without one.
//!
//! An update of an event used to end its time to live, so such events stayed for ever. One sweep at start grants it again.

use super::Store;
use crate::engine::registry::Registry;
use apiserver_storage::{Entry, Expect, Prefix, RangeOptions, StorageError};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Objects looked at in one read.
const PAGE: usize = 500;
/// Writes in flight at a time.
const AT_ONCE: usize = 64;

/// Writes every object again that should have a time to live and has none, in a task of its own.
pub fn start_sweep(registry: &Registry) {
    let own = registry.clone();
    let begin = move || sweep_once(own.clone());
    registry.runtime().keep("time to live sweep", begin).detach();
}

async fn sweep_once(registry: Registry) {
    match sweep(&registry).await {
        Ok(0) => {}
        Ok(swept) => tracing::info!(objects = swept, "time to live added to stored objects"),
        Err(error) => tracing::warn!(%error, "giving objects a time to live failed, the next start goes on"),
    }
}

/// The sweep itself; the number of objects written.
pub async fn sweep(registry: &Registry) -> Result<usize, StorageError> {
    let mut prefixes = BTreeSet::new();
    let mut swept = 0;
    let rows: Vec<_> = registry.rows().all().cloned().collect();
    for row in rows {
        let lives_for_ever = !row.has_store || registry.time_to_live(&row).is_none();
        if lives_for_ever || !prefixes.insert(row.stored.prefix.clone()) {
            continue;
        }
        let store = Store::new(row, registry);
        swept += store.sweep().await?;
    }
    Ok(swept)
}

impl Store {
    async fn sweep(&self) -> Result<usize, StorageError> {
        let prefix = Prefix::parse(&self.row.collection(""))?;
        let mut options = RangeOptions {
            limit: PAGE,
            ..RangeOptions::default()
        };
        let mut swept = 0;
        loop {
            let page = self.storage().range(&prefix, &options).await?;
            for entries in page.entries.chunks(AT_ONCE) {
                let endless = entries.iter().filter(|entry| entry.expires.is_none());
                let writes = endless.map(|entry| self.grant_time_to_live(entry));
                for written in futures::future::join_all(writes).await {
                    swept += usize::from(written?);
                }
            }
            // Each page is of its own moment: objects made meanwhile have a time to live.
            match page.entries.last() {
                Some(last) if page.remaining > 0 => options.start_after = Some(last.key.clone()),
                _ => return Ok(swept),
            }
        }
    }

    /// `false` when another has written the object meanwhile, with a time to live.
    async fn grant_time_to_live(&self, entry: &Arc<Entry>) -> Result<bool, StorageError> {
        let write = self.put(
            entry.key.clone(),
            entry.record.clone(),
            Expect::At(entry.revision),
        );
        match self.storage().commit(vec![write]).await {
            Ok(_) => Ok(true),
            Err(StorageError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
