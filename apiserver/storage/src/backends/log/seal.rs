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
    let record = record.of_key(&entry.key).map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encryption::ResourceNames;
    use crate::{Key, suite};
    use machinery_meta::{ObjectKey, Revision};
    use machinery_runtime::Simulation;
    use std::path::Path;

    fn encryption(provider: &str) -> Encryption {
        let file = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers: [{{{provider}: {{keys: [{{name: k, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}}]}}}}]\n"
        );
        let runtime = Simulation::new(1).runtime();
        let own = Encryption::new(
            &runtime,
            ResourceNames::default(),
            Path::new("/enc"),
            file.as_bytes(),
        );
        own.unwrap()
    }

    fn entry(key: &str, record: Record) -> Arc<Entry> {
        Arc::new(Entry {
            key: Key::parse(key).unwrap(),
            revision: Revision(7),
            created: Revision(7),
            expires: None,
            record,
            seal: Seal::default(),
        })
    }

    #[test]
    fn encrypted_value_is_read_at_its_own_key_alone_whatever_encrypts_it() {
        for provider in ["secretbox", "aescbc", "aesgcm"] {
            let encryption = encryption(provider);
            let mut record = suite::record("s", "n", "value");
            let mut header = (*record.header).clone();
            header.key = ObjectKey::new("red", "s");
            record.header = Arc::new(header);
            let own = sealed(
                Some(&encryption),
                &entry("/registry/secrets/red/s", record.clone()),
            )
            .unwrap();
            assert!(own.record.is_sealed());
            assert_eq!(opened(Some(&encryption), &own).unwrap().record, record);
            for other in ["/registry/secrets/blue/s", "/registry/secrets/red/t"] {
                let moved = entry(other, own.record.clone());
                let refused = opened(Some(&encryption), &moved).unwrap_err().to_string();
                let words = match provider {
                    "aesgcm" => "message authentication failed",
                    _ => "the encrypted value is that of red/s",
                };
                assert!(refused.contains(words), "{provider} {other}: {refused}");
            }
        }
    }
}
