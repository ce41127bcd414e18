//! Keys that a file's records are encrypted with.

use crate::encryption::{Encryption, Seal, UndecryptedValues};
use crate::{Entry, Key};
use parking_lot::Mutex;

/// Keys that the records of a checkpoint are encrypted with, by resource. They are more than those of the entries in
/// memory: a checkpoint is written with the keys of its own time, and the next start reads it.
#[derive(Debug, Default)]
pub(super) struct Seals(Mutex<Vec<Noted>>);

/// Records of one resource under one key.
#[derive(Debug)]
struct Noted {
    seal: Seal,
    resource: (Box<str>, Box<str>),
    first: Key,
    count: usize,
}

impl Seals {
    /// Counts a record; a plain one needs no key.
    pub(super) fn note(&self, encryption: Option<&Encryption>, entry: &Entry) {
        let Some(encryption) = encryption.filter(|_| entry.seal != Seal::default()) else {
            return;
        };
        let (group, plural) = encryption.resource_of(&entry.key);
        let is_own =
            |own: &Noted| own.seal == entry.seal && *own.resource.0 == *group && *own.resource.1 == *plural;
        let mut noted = self.0.lock();
        // The last one first: records come in the order of their keys.
        match noted.iter().rposition(is_own) {
            Some(at) => noted[at].count += 1,
            None => noted.push(Noted {
                seal: entry.seal,
                resource: (group.into(), plural.into()),
                first: entry.key.clone(),
                count: 1,
            }),
        }
    }

    /// Records that another configuration does not open.
    pub(super) fn lost_by(&self, other: &Encryption) -> UndecryptedValues {
        let noted = self.0.lock();
        let lost: Vec<_> = noted
            .iter()
            .filter(|own| !other.has_key_of(&own.first, own.seal))
            .collect();
        UndecryptedValues {
            count: lost.iter().map(|own| own.count).sum(),
            first: lost.iter().map(|own| &own.first).min().cloned(),
        }
    }
}
