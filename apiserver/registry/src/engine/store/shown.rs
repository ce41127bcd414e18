//! Entries as a row shows them: storage keeps an object in the version in which it was written, and a webhook converts it
//! for rows of other versions.

use super::Store;
use crate::engine::codec;
use crate::engine::error::RegistryError;
use crate::engine::version_webhook::{Converted, MAX_BYTES, VersionWebhook};
use apiserver_storage::{Entry, Op, Write};
use machinery_schema::{Strictness, Tree, apply_defaults, decode_json};
use std::sync::Arc;

/// Objects of a list that are converted together, and their places in it.
#[derive(Default)]
struct Piece {
    places: Vec<usize>,
    documents: Vec<Tree>,
    bytes: usize,
}

impl Store {
    /// Entries in the form of this row, in their order.
    ///
    /// # Errors
    /// The webhook does not convert one of them.
    pub(crate) async fn shown(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>, RegistryError> {
        let Some(webhook) = &self.row.stored.webhook else {
            return Ok(entries
                .into_iter()
                .map(|entry| self.migrate_entry(entry))
                .collect());
        };
        let is_other = |entry: &Arc<Entry>| entry.record.fingerprint != self.row.stored.fingerprint;
        let others = entries.iter().filter(|entry| is_other(entry));
        let _room = webhook.room(others.map(|entry| entry.record.len()).sum()).await;
        let mut shown = Vec::with_capacity(entries.len());
        let mut piece = Piece::default();
        for entry in entries {
            if entry.record.fingerprint == self.row.stored.fingerprint {
                shown.push(entry);
            } else if let Some(known) = webhook.cache.get(&self.converted_key(&entry)) {
                shown.push(known);
            } else {
                let document = document(&entry)?;
                if document.str_at(&["apiVersion"]) == self.row.gvk.api_version() {
                    // An older schema of this version.
                    shown.push(self.entry_of(webhook, &entry, &document)?);
                } else {
                    piece.bytes += document.arena_bytes();
                    piece.places.push(shown.len());
                    piece.documents.push(document);
                    shown.push(entry);
                }
                if piece.bytes >= MAX_BYTES {
                    self.show_piece(webhook, std::mem::take(&mut piece), &mut shown)
                        .await?;
                }
            }
        }
        self.show_piece(webhook, piece, &mut shown).await?;
        Ok(shown)
    }

    /// Converts a piece of a list: the objects of no more than one review are there as documents.
    async fn show_piece(
        &self,
        webhook: &VersionWebhook,
        piece: Piece,
        shown: &mut [Arc<Entry>],
    ) -> Result<(), RegistryError> {
        let converted = webhook.convert(piece.documents, &self.row.gvk).await?;
        for (place, document) in piece.places.into_iter().zip(converted) {
            shown[place] = self.entry_of(webhook, &shown[place], &document)?;
        }
        Ok(())
    }

    /// One entry in the form of this row.
    pub(crate) async fn shown_one(&self, entry: Arc<Entry>) -> Result<Arc<Entry>, RegistryError> {
        if self.row.stored.webhook.is_none() {
            return Ok(self.migrate_entry(entry));
        }
        let mut shown = self.shown(vec![entry]).await?;
        shown
            .pop()
            .ok_or_else(|| RegistryError::Internal("one object is converted to one".to_owned()))
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

    fn converted_key(&self, entry: &Entry) -> Converted {
        Converted {
            key: entry.key.clone(),
            revision: entry.revision,
            form: self.row.stored.fingerprint,
        }
    }

    /// The entry with this document as its object.
    fn entry_of(
        &self,
        webhook: &VersionWebhook,
        entry: &Arc<Entry>,
        document: &Tree,
    ) -> Result<Arc<Entry>, RegistryError> {
        let object = typed(document, &self.row.schema, self.row.ty)?;
        let shown = Arc::new(Entry {
            key: entry.key.clone(),
            revision: entry.revision,
            created: entry.created,
            expires: entry.expires,
            record: codec::record(&self.row, &object),
            seal: entry.seal,
        });
        webhook.cache.keep(self.converted_key(entry), &shown);
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
        let own = codec::document(&record, "")?;
        let mut converted = webhook.convert(vec![own], &storage.gvk).await?;
        let converted = converted
            .pop()
            .ok_or_else(|| RegistryError::Internal("one object is converted to one".to_owned()))?;
        let object = typed(&converted, &storage.schema, storage.ty)?;
        let record = codec::record_as(storage.fingerprint, &storage.selectable, &object);
        let op = Op::Put { record, ttl };
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
        let mut converted = webhook.convert(vec![document], &to.gvk).await?;
        let converted = converted
            .pop()
            .ok_or_else(|| RegistryError::Internal("one object is converted to one".to_owned()))?;
        typed(&converted, &to.schema, to.ty)
    }
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
