//! Entries as a row shows them: storage keeps an object in the version in which it was written, and a webhook converts it
//! for rows of other versions.

use super::Store;
use super::migration::{batches, bytes_of, with_record};
use crate::engine::codec;
use crate::engine::error::RegistryError;
use crate::engine::version_webhook::{Converted, VersionWebhook};
use apiserver_storage::{Entry, Op, Record, Write};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use std::sync::Arc;

/// The namespace of all entries; empty where they have several, or none.
fn namespace_of(entries: &[(usize, Arc<Entry>)]) -> String {
    let mut all = entries.iter().map(|(_, own)| &own.record.header.key.namespace);
    let first = all.next().filter(|first| all.all(|own| own == *first));
    first.cloned().unwrap_or_default()
}

impl Store {
    /// Entries in the form of this row, in their order. Large ones are converted in turns of the reader.
    ///
    /// # Errors
    /// The webhook does not convert one of them.
    pub(crate) async fn shown(&self, mut entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, RegistryError> {
        let mut old = Vec::new();
        for (at, entry) in entries.iter_mut().enumerate() {
            if self.is_of_now(entry) {
                continue;
            }
            match self.known(entry) {
                Some(known) => *entry = known,
                None => old.push((at, Arc::clone(entry))),
            }
        }
        let bytes = old.iter().map(|(_, entry)| entry.record.len()).sum();
        let _room = match &self.row.stored.webhook {
            Some(webhook) => webhook.room(&namespace_of(&old), bytes).await,
            None => None,
        };
        for batch in batches(old) {
            let (places, batch): (Vec<usize>, Vec<Arc<Entry>>) = batch.into_iter().unzip();
            let shown = match &self.row.stored.webhook {
                Some(webhook) => self.converted(webhook, batch).await?,
                None => self.migrated(batch).await,
            };
            for (at, shown) in places.into_iter().zip(shown) {
                entries[at] = shown;
            }
        }
        Ok(entries)
    }

    /// An entry as it was shown before, where that is kept.
    fn known(&self, entry: &Entry) -> Option<Arc<Entry>> {
        let form = self.row.stored.fingerprint;
        match &self.row.stored.webhook {
            Some(webhook) => webhook.cache.get(&Converted::of(entry, form)),
            None => self.registry.converted().get(entry, form),
        }
    }

    /// Entries as the webhook's answer and the schema of now have them.
    async fn converted(
        &self,
        webhook: &VersionWebhook,
        entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>, RegistryError> {
        let (turns, entries) = (self.turns(), Arc::new(entries));
        let stored = Arc::clone(&entries);
        let read = move || stored.iter().map(|own| document(own)).collect();
        let documents: Result<Vec<Tree>, RegistryError> = turns.run(bytes_of(&entries), read).await;
        let mut documents: Vec<Option<Tree>> = documents?.into_iter().map(Some).collect();
        // Others are of an older schema of this version.
        let own_version = self.row.gvk.api_version();
        let is_other = |own: &Option<Tree>| {
            own.as_ref()
                .is_some_and(|own| own.str_at(&["apiVersion"]) != own_version)
        };
        let places: Vec<usize> = (0..documents.len())
            .filter(|at| is_other(&documents[*at]))
            .collect();
        let others = places.iter().filter_map(|at| documents[*at].take()).collect();
        let converted = webhook.convert(others, &self.row.gvk, &turns).await?;
        for (at, document) in places.into_iter().zip(converted) {
            documents[at] = Some(document);
        }
        let documents: Vec<Tree> = documents.into_iter().flatten().collect();
        let (store, bytes) = (self.clone(), documents.iter().map(Tree::arena_bytes).sum());
        let made = move || {
            let each = entries.iter().zip(&documents);
            each.map(|(entry, document)| store.entry_of(entry, document))
                .collect()
        };
        turns.run(bytes, made).await
    }

    /// One entry in the form of this row.
    pub(crate) async fn shown_one(&self, entry: Arc<Entry>) -> Result<Arc<Entry>, RegistryError> {
        if self.is_of_now(&entry) {
            return Ok(entry);
        }
        only(self.shown(vec![entry]).await?)
    }

    /// The same of an entry that may be missing.
    pub(super) async fn shown_if(
        &self,
        entry: Option<Arc<Entry>>,
    ) -> Result<Option<Arc<Entry>>, RegistryError> {
        match entry {
            Some(entry) => self.shown_one(entry).await.map(Some),
            None => Ok(None),
        }
    }

    /// An entry that a write has stored, in the form of this row. Where others' calls have all places of the webhook, it is the
    /// object that was given: the write is done, and its client is not to come again with it.
    ///
    /// # Errors
    /// The webhook does not convert it.
    pub(super) async fn written(
        &self,
        entry: Option<Arc<Entry>>,
        given: Option<Record>,
    ) -> Result<Option<Arc<Entry>>, RegistryError> {
        let Some(entry) = entry else { return Ok(None) };
        match (self.shown_one(Arc::clone(&entry)).await, given) {
            (Err(RegistryError::TooManyRequests { .. }), Some(given)) => Ok(Some(with_record(&entry, given))),
            (shown, _) => shown.map(Some),
        }
    }

    /// The entry with this document as its object.
    fn entry_of(&self, entry: &Arc<Entry>, document: &Tree) -> Result<Arc<Entry>, RegistryError> {
        let object = typed(document, &self.row.schema, self.row.ty)?;
        let shown = with_record(entry, codec::record(&self.row, &object));
        if let Some(webhook) = &self.row.stored.webhook {
            let of = Converted::of(entry, self.row.stored.fingerprint);
            webhook.cache.keep(of, &shown);
        }
        Ok(shown)
    }

    /// A write of this row's form as storage takes it.
    ///
    /// # Errors
    /// The webhook does not convert its object.
    pub(super) async fn to_storage(&self, write: Write) -> Result<Write, RegistryError> {
        let Some(webhook) = &self.row.stored.webhook else {
            return Ok(write);
        };
        let storage = &webhook.storage;
        let Op::Put { record, ttl } = write.op else {
            return Ok(write);
        };
        if self.row.gvk == storage.gvk {
            let op = Op::Put { record, ttl };
            return Ok(Write { op, ..write });
        }
        let record_bytes = record.len();
        let turns = self.turns();
        let read = move || codec::document(&record, "");
        let own = turns.run(record_bytes, read).await?;
        let converted = only(webhook.convert(vec![own], &storage.gvk, &turns).await?)?;
        let storage = storage.clone();
        let made = move || {
            let object = typed(&converted, &storage.schema, storage.ty)?;
            let (form, selectable) = (storage.fingerprint, &storage.selectable);
            Ok::<_, RegistryError>(codec::record_as(form, selectable, &object))
        };
        let op = Op::Put {
            record: turns.run(record_bytes, made).await?,
            ttl,
        };
        Ok(Write { op, ..write })
    }

    /// An object of this row in another version of the kind.
    ///
    /// # Errors
    /// The other row is of other objects, or the webhook does not convert the object.
    pub async fn convert(
        &self,
        object: &Tree,
        to: &crate::engine::row::ResourceRow,
    ) -> Result<Tree, RegistryError> {
        let Some(webhook) = &self.row.stored.webhook else {
            return codec::convert(&self.row, to, object);
        };
        if to.gvk == self.row.gvk {
            return Ok(object.clone());
        }
        let document = Tree::from_json(&object.root().to_json()).map_err(internal)?;
        let turns = self.turns();
        let converted = only(webhook.convert(vec![document], &to.gvk, &turns).await?)?;
        let (schema, ty) = (Arc::clone(&to.schema), to.ty);
        let bytes = converted.arena_bytes();
        turns.run(bytes, move || typed(&converted, &schema, ty)).await
    }
}

/// The only one of these.
fn only<T>(mut all: Vec<T>) -> Result<T, RegistryError> {
    let none = || RegistryError::Internal("one object is converted to one".to_owned());
    all.pop().ok_or_else(none)
}

fn internal(error: impl std::fmt::Display) -> RegistryError {
    RegistryError::Internal(error.to_string())
}

/// The object of an entry, in the version that it is stored in, free of any schema.
fn document(entry: &Entry) -> Result<Tree, RegistryError> {
    codec::document(&entry.record, &entry.revision.to_string())
}

/// A document as an object of a version: what the version does not know is dropped, what it lacks has its default.
fn typed(
    document: &Tree,
    schema: &Arc<machinery_schema::Schema>,
    ty: machinery_schema::TypeId,
) -> Result<Tree, RegistryError> {
    let text = document.root().to_json();
    let decoded = decode_json(schema, ty, text.as_bytes(), Strictness::Ignore).map_err(internal)?;
    let mut object = decoded.tree;
    apply_defaults(&mut object);
    Ok(object)
}
