//! Records as they are stored and read, and files of other versions.

use super::*;
use crate::backends::log::wire::Reader;
use crate::encryption::Seal;
use crate::{Entry, Key, StorageError, suite};
use machinery_meta::Revision;
use std::path::Path;
use std::sync::Arc;

/// A record with the checksum its bytes require: damage that a checksum does not see.
fn sealed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    [&length[..], &crc32c::crc32c(payload).to_le_bytes(), payload].concat()
}

#[test]
fn record_with_zeros_as_long_as_a_sector_has_none_when_stored() {
    let mut record = suite::record("web", "node-1", "value");
    let mut header = (*record.header).clone();
    header.fields = [("involvedObject.name", "\0".repeat(3000))].into();
    record.header = Arc::new(header);
    let entry = Arc::new(Entry {
        key: Key::parse("/registry/events/default/e").unwrap(),
        revision: Revision(7),
        created: Revision(3),
        expires: None,
        record,
        seal: Seal::default(),
    });
    let put = Stored::Put {
        entry,
        previous: Revision(5),
    };
    let mut out = Vec::new();
    put_stored(&mut out, &put, true);
    assert!(!out.windows(SECTOR).any(|run| run.iter().all(|byte| *byte == 0)));
    assert_eq!(take_stored(&mut Reader::new(&out)), Ok((put, true)));
}

#[test]
fn file_of_another_version_is_refused_by_number() {
    let path = Path::new("/data/log-1.seg");
    assert!(matches!(
        unknown_version(path, 0),
        StorageError::OlderFormat { found: 0, .. }
    ));
    assert!(matches!(
        unknown_version(path, 2),
        StorageError::NewerFormat { found: 2, .. }
    ));
}

#[test]
fn log_format_record_fuzz_never_panics() {
    let key = Key::parse("/registry/pods/default/web").unwrap();
    let entry = Entry {
        key: key.clone(),
        revision: Revision(7),
        created: Revision(3),
        expires: Some(99),
        record: suite::record("web", "node-1", "value"),
        seal: Seal::default(),
    };
    let (revision, previous) = (Revision(8), Revision(7));
    let put = Stored::Put {
        entry: Arc::new(entry),
        previous: Revision(5),
    };
    let all = [
        put,
        Stored::Delete {
            key,
            revision,
            previous,
        },
        Stored::Compact { floor: revision },
    ];
    let payloads = all.map(|stored| {
        let mut out = Vec::new();
        put_stored(&mut out, &stored, true);
        out.split_off(RECORD_PREFIX_BYTES)
    });
    machinery_fuzz::fuzz(payloads, |payload| {
        let bytes = sealed(payload);
        if let Ok((stored, commits)) = take_stored(&mut Reader::new(&bytes)) {
            let mut again = Vec::new();
            put_stored(&mut again, &stored, commits);
            let read = take_stored(&mut Reader::new(&again)).unwrap();
            assert_eq!(
                (read.0.revision(), read.0.key(), read.1),
                (stored.revision(), stored.key(), commits)
            );
        }
    });
}

#[test]
fn number_behind_which_there_is_none_is_damage() {
    let revision = |revision| {
        let (store, entries) = (u64::MAX, 1);
        FileHeader::Backup(BackupHeader {
            store,
            revision,
            entries,
        })
    };
    for (number, is_known) in [
        (0, true),
        (NUMBER_MAX, true),
        (NUMBER_MAX + 1, false),
        (u64::MAX, false),
    ] {
        let header = revision(number);
        let expected = if is_known {
            Ok(header)
        } else {
            Err(HeaderError::Damaged)
        };
        assert_eq!(FileHeader::decode(&header.encode()), expected, "{number}");
        let batch = BatchHeader {
            store: u64::MAX,
            batch: 1,
            first_revision: number,
            records: 0,
            body_bytes: 0,
        };
        let mut bytes = [0; BATCH_HEADER_BYTES];
        batch.encode(&mut bytes);
        let expected = if is_known {
            Ok(batch)
        } else {
            Err(HeaderError::Damaged)
        };
        assert_eq!(BatchHeader::decode(&bytes), expected, "{number}");
    }
}
