//! Records that no key opens, and those that would be lost with one.

use super::engine::Engine;
use crate::encryption::{Encryption, Seal, UndecryptedValues};
use crate::{Entry, Key};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Records that are sealed and stay so. None is added while the log runs: what is written comes from memory.
    pub(super) fn unopened(&self) -> UndecryptedValues {
        let mut sealed = self.sealed.lock();
        if !sealed.is_empty() {
            let root = self.live.read().root.clone();
            sealed.retain(|key| root.get(key.as_str()).is_some_and(|entry| !self.opens(entry)));
        }
        UndecryptedValues::of(sealed.iter())
    }

    /// Records that another configuration does not open, of those that this one does: entries in memory and in the queue of
    /// writes, and what the next start finds in the newest checkpoint, or in one that is being written.
    pub(super) fn lost_by(&self, other: &Encryption) -> UndecryptedValues {
        // In the order in which a record moves, so that none is missed on its way.
        let queued = self.writer.lock().queued();
        let root = self.live.read().root.clone();
        let entries = queued.iter().chain(root.values());
        let lost: BTreeSet<&Key> = entries
            .filter(|entry| self.loses(entry, other))
            .map(|entry| &entry.key)
            .collect();
        if !lost.is_empty() {
            return UndecryptedValues::of(lost);
        }
        let mut files = self.drafts.lock().clone();
        let newest = self.files.checkpoints().pop();
        files.extend(newest.map(|checkpoint| Arc::clone(&checkpoint.seals)));
        let lost = files.iter().map(|seals| seals.lost_by(other));
        lost.max_by_key(|lost| lost.count).unwrap_or_default()
    }

    fn opens(&self, entry: &Entry) -> bool {
        let encryption = self.options.encryption.as_ref();
        !entry.record.is_sealed()
            || encryption.is_some_and(|own| own.can_open(&entry.key, &entry.record.parts[0]))
    }

    fn loses(&self, entry: &Entry, other: &Encryption) -> bool {
        if entry.record.is_sealed() {
            return self.opens(entry) && !other.can_open(&entry.key, &entry.record.parts[0]);
        }
        // Plain records are read whatever the configuration says.
        entry.seal != Seal::default() && !other.has_key_of(&entry.key, entry.seal)
    }

    /// Reports whether records lie on the disk otherwise than they would be written now.
    pub(super) fn has_stale(&self) -> bool {
        let Some(encryption) = &self.options.encryption else {
            return false;
        };
        let root = self.live.read().root.clone();
        let mut open = root.values().filter(|entry| !entry.record.is_sealed());
        open.any(|entry| encryption.current_seal(&entry.key) != entry.seal)
    }
}
