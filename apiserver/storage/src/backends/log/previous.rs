//! The previous versions of changes that are read from the log: looked up many at a time, in the order they lie in.
//!
//! A change names the revision of the version before it. Versions still in the log are read batch by batch, each once
//! however many versions are in it; older ones are in a checkpoint, block by block. A version is kept only where its
//! reader wants the change, and no more than [`KEPT_BYTES`] of them at once: versions of a megabyte may stand before changes
//! of a hundred bytes (a deletion).

use super::engine::Engine;
use super::format::Stored;
use super::seal;
use crate::encryption::Encryption;
use crate::feed::Slot;
use crate::{Entry, Event, Key, StorageError};
use machinery_meta::Revision;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Bytes of kept versions beyond which those that follow are not kept.
const KEPT_BYTES: usize = 4 << 20;

/// A change as it was read.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: Revision,
    pub(super) key: Key,
    pub(super) entry: Option<Arc<Entry>>,
    previous: Previous,
}

#[derive(Debug)]
enum Previous {
    /// The change created the object, or what was before it was read with it.
    Known(Option<Arc<Entry>>),
    /// To be looked up.
    At(Revision),
}

/// Changes in their order.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) all: Vec<Change>,
    /// The last version of each key among them.
    last: HashMap<Key, Option<Arc<Entry>>>,
}

impl Changes {
    /// Adds a change; [`Stored::Compact`] is none.
    pub(super) fn add(&mut self, stored: Stored, encryption: Option<&Encryption>) -> &Change {
        let (revision, key, entry, previous) = match stored {
            Stored::Put { entry, previous } => {
                let entry = seal::opened_if_possible(encryption, entry);
                (entry.revision, entry.key.clone(), Some(entry), previous)
            }
            Stored::Delete {
                key,
                revision,
                previous,
            } => (revision, key, None, previous),
            Stored::Compact { .. } => unreachable!("only changes are collected"),
        };
        let previous = match self.last.insert(key.clone(), entry.clone()) {
            Some(previous) => Previous::Known(previous),
            None if previous == Revision::ZERO => Previous::Known(None),
            None => Previous::At(previous),
        };
        self.all.push(Change {
            revision,
            key,
            entry,
            previous,
        });
        self.all.last().expect("just added")
    }
}

/// Versions before some changes, as far as they were found.
#[derive(Debug, Default)]
pub(super) struct Versions {
    kept: HashMap<Revision, Arc<Entry>>,
    too_much: HashSet<Revision>,
    bytes: usize,
}

impl Versions {
    /// Reports whether the version before a change is wanted and not kept.
    pub(super) fn is_too_much(&self, change: &Change) -> bool {
        matches!(change.previous, Previous::At(revision) if self.too_much.contains(&revision))
    }

    /// A change with the version before it; without, where no reader wants the change.
    pub(super) fn event(&self, change: &Change) -> Event {
        let previous = match &change.previous {
            Previous::Known(previous) => previous.clone(),
            Previous::At(revision) => self.kept.get(revision).cloned(),
        };
        Event {
            revision: change.revision,
            key: change.key.clone(),
            entry: change.entry.clone(),
            previous,
        }
    }

    fn found(&mut self, entry: Arc<Entry>, is_wanted: bool) {
        if !is_wanted {
            return;
        }
        if self.bytes >= KEPT_BYTES {
            self.too_much.insert(entry.revision);
            return;
        }
        self.bytes += entry.footprint();
        self.kept.insert(entry.revision, entry);
    }
}

/// A search for versions, under way.
struct VersionSearch<'a> {
    slot: &'a Slot,
    encryption: Option<&'a Encryption>,
    /// By the revision that is looked for.
    missing: BTreeMap<Revision, &'a Change>,
    versions: Versions,
}

impl VersionSearch<'_> {
    fn take(&mut self, entry: Arc<Entry>) {
        let is_it = |change: &&Change| change.key == entry.key;
        let Some(change) = self.missing.get(&entry.revision).copied().filter(is_it) else {
            return;
        };
        self.missing.remove(&entry.revision);
        let entry = seal::opened_if_possible(self.encryption, entry);
        let is_wanted = self.slot.wants_version(&change.key, change.entry.as_deref())
            || self.slot.wants_version(&change.key, Some(&entry));
        self.versions.found(entry, is_wanted);
    }

    fn revisions(&self) -> Vec<Revision> {
        self.missing.keys().copied().collect()
    }
}

impl Engine {
    /// The versions before changes: from the log where it reaches that far, otherwise from the checkpoint that the log
    /// begins behind. The first that is found is kept whatever its size.
    pub(super) fn versions(&self, slot: &Slot, changes: &[Change]) -> Result<Versions, StorageError> {
        let at = |change: &'_ Change| match change.previous {
            Previous::At(revision) => Some(revision),
            Previous::Known(_) => None,
        };
        let mut search = VersionSearch {
            slot,
            encryption: self.options.encryption.as_deref(),
            missing: changes.iter().filter_map(|own| Some((at(own)?, own))).collect(),
            versions: Versions::default(),
        };
        // The log first: it holds the version of most recent changes, and a checkpoint has only the newest of
        // each key.
        self.search_log(&mut search)?;
        self.search_checkpoints(&mut search)?;
        match search.missing.first_key_value() {
            None => Ok(search.versions),
            Some((revision, change)) => Err(StorageError::Unavailable(format!(
                "{} at revision {revision} is not in the log",
                change.key
            ))),
        }
    }

    fn search_log(&self, search: &mut VersionSearch<'_>) -> Result<(), StorageError> {
        let revisions = search.revisions();
        let segments = self.files.segments();
        for (at, segment) in segments.iter().enumerate() {
            let until = segments.get(at + 1).map(|next| next.header.first_revision);
            let start = revisions.partition_point(|own| own.0 < segment.header.first_revision);
            let end = until.map_or(revisions.len(), |until| {
                revisions.partition_point(|own| own.0 < until)
            });
            if start < end {
                segment.read_at(&revisions[start..end], |stored| {
                    if let Stored::Put { entry, .. } = stored {
                        search.take(entry);
                    }
                })?;
            }
        }
        Ok(())
    }

    fn search_checkpoints(&self, search: &mut VersionSearch<'_>) -> Result<(), StorageError> {
        for checkpoint in self.files.checkpoints() {
            let reached = search.missing.range(..=checkpoint.revision());
            let mut keys: Vec<&Key> = reached.map(|(_, change)| &change.key).collect();
            keys.sort_unstable();
            checkpoint.read_at(&keys, |entry| search.take(entry))?;
        }
        Ok(())
    }
}
