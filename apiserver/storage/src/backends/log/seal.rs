//! Entries as they lie on the disk: where the configuration says so, everything but key and revisions is encrypted.
//!
//! A sealed record has the stored value for its first part and no others. It is opened where it comes into memory; where
//! no key fits, it stays sealed, and a read of it returns that error.

use super::format;
use super::wire::Reader;
use crate::encryption::{Encryption, Seal};
use crate::{Entry, Event, Record, StorageError};
use bytes::Bytes;
use machinery_meta::ObjectHeader;
use std::sync::Arc;

/// The entry as it is to be written.
///
/// Errors: [`StorageError::NotSealed`], before [`Encryption::check_seals`] holds.
pub(super) fn sealed(
    encryption: Option<&Encryption>,
    entry: &Arc<Entry>,
) -> Result<Arc<Entry>, StorageError> {
    let Some(encryption) = encryption.filter(|_| !entry.record.is_sealed()) else {
        return Ok(Arc::clone(entry));
    };
    // Checked before the copy: most keys are not encrypted.
    if encryption.current_seal(&entry.key) == Seal::default() {
        return Ok(Arc::clone(entry));
    }
    let mut plain = Vec::with_capacity(entry.footprint());
    format::put_contents(&mut plain, &entry.record);
    let sealed = encryption.seal(&entry.key, &plain);
    Ok(match sealed.map_err(|cause| StorageError::NotSealed { cause })? {
        Some((stored, seal)) => Arc::new(with(entry, of_stored(stored.into()), seal)),
        None => Arc::clone(entry),
    })
}

/// A record that holds a stored value.
pub(super) fn of_stored(stored: Bytes) -> Record {
    Record {
        parts: [stored, Bytes::new(), Bytes::new()],
        fingerprint: 0,
        header: Arc::new(ObjectHeader::default()),
    }
}

/// The entry as it was before it was sealed.
///
/// Errors: [`StorageError::Sealed`], where no key fits.
pub(super) fn opened(
    encryption: Option<&Encryption>,
    entry: &Arc<Entry>,
) -> Result<Arc<Entry>, StorageError> {
    if !entry.record.is_sealed() {
        return Ok(Arc::clone(entry));
    }
    let failed = |cause: String| StorageError::Sealed {
        key: entry.key.clone(),
        cause,
    };
    let none = || failed("identity transformer tried to read encrypted data".to_owned());
    let encryption = encryption.ok_or_else(none)?;
    let stored = &entry.record.parts[0];
    let (plain, seal) = encryption.open(&entry.key, stored).map_err(failed)?;
    let record = format::take_contents(&mut Reader::new(&plain));
    let record = record.map_err(|found| failed(found.0.to_owned()))?;
    Ok(Arc::new(with(entry, record, seal)))
}

/// The same, or the sealed entry where no key fits.
pub(super) fn opened_if_possible(encryption: Option<&Encryption>, entry: Arc<Entry>) -> Arc<Entry> {
    opened(encryption, &entry).unwrap_or(entry)
}

/// The changes as a reader is given them.
pub(super) fn readable(
    encryption: Option<&Encryption>,
    events: Vec<Arc<Event>>,
) -> Result<Vec<Arc<Event>>, StorageError> {
    let is_sealed = |entry: &Option<Arc<Entry>>| entry.as_ref().is_some_and(|own| own.record.is_sealed());
    if !events
        .iter()
        .any(|event| is_sealed(&event.entry) || is_sealed(&event.previous))
    {
        return Ok(events);
    }
    let open = |entry: &Option<Arc<Entry>>| entry.as_ref().map(|own| opened(encryption, own)).transpose();
    let each = events.iter().map(|event| {
        Ok(Arc::new(Event {
            revision: event.revision,
            key: event.key.clone(),
            entry: open(&event.entry)?,
            previous: open(&event.previous)?,
        }))
    });
    each.collect()
}

fn with(entry: &Entry, record: Record, seal: Seal) -> Entry {
    Entry {
        key: entry.key.clone(),
        revision: entry.revision,
        created: entry.created,
        expires: entry.expires,
        record,
        seal,
    }
}
