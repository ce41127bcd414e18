//! Entries of older schemas in the form of now.

use super::Store;
use super::read::SCAN_PAGE;
use crate::engine::codec;
use crate::engine::context::LARGE_BODY_BYTES;
use crate::engine::error::RegistryError;
use crate::engine::scope::Scope;
use apiserver_storage::{Entry, RangeOptions, Record};
use std::sync::Arc;

/// Bytes of entries that are converted in one turn; one entry may have more.
const TURN_BYTES: usize = 2 << 20;
/// Number of them.
const TURN_ENTRIES: usize = 500;

impl Store {
    /// Reports whether an entry has the row's form of now.
    pub(super) fn is_of_now(&self, entry: &Entry) -> bool {
        entry.record.fingerprint == self.row.stored.fingerprint
    }

    /// A batch of entries of older forms in the form of now.
    pub(super) async fn migrated(&self, batch: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
        let (store, bytes) = (self.clone(), bytes_of(&batch));
        let migrate = move || {
            batch
                .into_iter()
                .map(|entry| store.migrate_entry(entry))
                .collect()
        };
        self.turns().run(bytes, migrate).await
    }

    /// An entry in the form of the row's schema now. A record of an older one that has the same content in the new form is
    /// converted once: storage keeps the new form where it holds records in memory, and nothing is written and no event is
    /// sent. Where the content differs (a field is pruned or has a default), storage keeps what was written, with the
    /// header of now: the next schema may have the field again. The new form is then among the registry's converted
    /// objects, as long as there is room. An unreadable entry stays as it is, and a read of it returns the reason.
    ///
    /// It takes time in proportion to the entry: large ones are converted in turns.
    pub(super) fn migrate_entry(&self, entry: Arc<Entry>) -> Arc<Entry> {
        if self.is_of_now(&entry) {
            return entry;
        }
        // Another reader may have had its turn before.
        if let Some(known) = self.registry.converted().get(&entry, self.row.stored.fingerprint) {
            return known;
        }
        let record = match codec::migrate_record(&self.row, &entry) {
            Ok(record) => record,
            Err(error) => {
                tracing::warn!(key = %entry.key, %error, "an object of an older schema is unreadable");
                return entry;
            }
        };
        let is_same = codec::has_same_content(&entry.record, &record);
        let is_held = is_same && self.recache(&entry, record.clone());
        if !is_same && entry.record.header != record.header {
            let header = Arc::clone(&record.header);
            let old = entry.record.clone();
            self.recache(&entry, Record { header, ..old });
        }
        let migrated = with_record(&entry, record);
        if !is_held {
            self.registry.converted().keep(&migrated);
        }
        migrated
    }

    fn recache(&self, entry: &Entry, record: Record) -> bool {
        self.storage().recache(&entry.key, entry.revision, record)
    }

    /// Brings every object into the row's form of now, in turns of the server itself, while the row is served.
    pub(crate) async fn renew_all(&self) -> Result<(), RegistryError> {
        let prefix = self.prefix(&Scope::Cluster)?;
        let mut range = RangeOptions {
            limit: SCAN_PAGE,
            ..RangeOptions::default()
        };
        loop {
            let page = self.storage().range(&prefix, &range).await;
            let page = page.map_err(|error| self.storage_error(&error))?;
            range.start_after = page.entries.last().map(|entry| entry.key.clone());
            let old = page.entries.into_iter().filter(|entry| !self.is_of_now(entry));
            for batch in batches(old.map(|entry| ((), entry)).collect()) {
                if self.row.superseded.is_cancelled() {
                    return Ok(());
                }
                let store = self.clone();
                let renew = move || {
                    batch
                        .into_iter()
                        .for_each(|(_, entry)| drop(store.migrate_entry(entry)))
                };
                self.turns().run(LARGE_BODY_BYTES, renew).await;
            }
            if page.remaining == 0 || range.start_after.is_none() {
                return Ok(());
            }
        }
    }
}

/// Bytes of records.
pub(super) fn bytes_of(entries: &[Arc<Entry>]) -> usize {
    entries.iter().map(|entry| entry.record.len()).sum()
}

/// Entries by turns, each with what goes along.
pub(super) fn batches<T>(entries: Vec<(T, Arc<Entry>)>) -> Vec<Vec<(T, Arc<Entry>)>> {
    let (mut batches, mut bytes) = (Vec::<Vec<_>>::new(), 0);
    for (with, entry) in entries {
        let own = entry.record.len();
        match batches.last_mut() {
            Some(batch) if bytes + own <= TURN_BYTES && batch.len() < TURN_ENTRIES => {
                bytes += own;
                batch.push((with, entry));
            }
            _ => {
                bytes = own;
                batches.push(vec![(with, entry)]);
            }
        }
    }
    batches
}

/// An entry with another record.
pub(super) fn with_record(entry: &Entry, record: Record) -> Arc<Entry> {
    Arc::new(Entry {
        key: entry.key.clone(),
        revision: entry.revision,
        created: entry.created,
        expires: entry.expires,
        record,
        seal: entry.seal,
    })
}
