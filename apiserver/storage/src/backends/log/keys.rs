//! Records that no key opens, and those that would be lost with one.

use super::engine::Engine;
use crate::Entry;
use crate::encryption::{Encryption, Seal, Unopened};

impl Engine {
    /// Records that are sealed and stay so. None is added while the log runs: what is written comes from memory.
    pub(super) fn unopened(&self) -> Unopened {
        let mut sealed = self.sealed.lock();
        if !sealed.is_empty() {
            let root = self.live.read().root.clone();
            sealed.retain(|key| root.get(key.as_str()).is_some_and(|entry| !self.opens(entry)));
        }
        Unopened::of(sealed.iter())
    }

    /// Records that another configuration does not open, of those that this one does.
    pub(super) fn lost_by(&self, other: &Encryption) -> Unopened {
        let root = self.live.read().root.clone();
        let lost = root.values().filter(|entry| self.loses(entry, other));
        Unopened::of(lost.map(|entry| &entry.key))
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
