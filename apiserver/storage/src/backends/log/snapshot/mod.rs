//! etcd's snapshots, as `etcdctl snapshot save` makes them: a bbolt file with its SHA-256 behind it.
//!
//! One is read into the state of a log, through the codec that reads etcd's values, and written from one. The file
//! holds the newest version of each object; older revisions count as compacted.

mod bolt_reader;
mod bolt_writer;
mod format;
mod values;

use super::backup::parent;
use super::format::NUMBER_MAX;
use super::offline::OfflineState;
use crate::encryption::{Encryption, Seal};
use crate::live::Root;
use crate::{Entry, Key, RecordCodec, StorageError};
use bolt_reader::BoltReader;
use bolt_writer::{BoltWriter, Pages, Tree};
use format::{DIGEST_BYTES, DIGEST_UNIT};
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskFile, OpenMode};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use values::{KeyValue, Lease};

/// Options for reading a snapshot.
#[derive(Debug, Clone, Default)]
pub struct SnapshotOptions {
    /// Seconds since 1970: leases go on from here.
    pub now: u64,
    /// Takes a file without a digest, as one copied from etcd's data directory is.
    pub skip_hash_check: bool,
    /// Opens what is encrypted.
    pub encryption: Option<Arc<Encryption>>,
    /// Only objects whose key begins so are read.
    pub prefix: String,
}

/// A snapshot as a state.
#[derive(Debug)]
pub struct SnapshotContent {
    pub state: OfflineState,
    /// Keys that are no objects of Kubernetes', and were left out.
    pub left_out: Vec<String>,
}

/// The buckets of an etcd, in the order of their names.
const BUCKETS: [&str; 10] = [
    "alarm",
    "auth",
    "authRoles",
    "authUsers",
    "cluster",
    "key",
    "lease",
    "members",
    "members_removed",
    "meta",
];
/// Objects lie below it.
const REGISTRY: &str = "/registry/";
/// No store is larger; a list of what was left out is for a reader.
const MAX_LEFT_OUT: usize = 1000;
/// Entries that end in the same minute share a lease.
const LEASE_SECONDS: u64 = 60;

impl OfflineState {
    /// Reads a snapshot of etcd.
    ///
    /// Errors: [`StorageError::Corrupt`] where digest or pages are not what was written; [`StorageError::Unreadable`] for
    /// a value that the codec does not read.
    pub fn of_etcd_snapshot(
        disk: &dyn Disk,
        path: &Path,
        codec: &dyn RecordCodec,
        options: &SnapshotOptions,
    ) -> Result<SnapshotContent, StorageError> {
        let failed = || StorageError::io(format!("reading {}", path.display()));
        let file = disk.open(path, OpenMode::Read).map_err(failed())?;
        let length = verified_length(path, &*file, options.skip_hash_check)?;
        let mut bolt = BoltReader::open(path, &*file, length)?;
        let leases = leases(&mut bolt, options.now)?;
        let (newest, revision) = newest(&mut bolt)?;
        let mut content = SnapshotContent {
            state: Self {
                store: 0,
                revision: Revision(revision),
                root: Root::default(),
                lock: None,
            },
            left_out: Vec::new(),
        };
        for (key, value) in newest {
            if !key.starts_with(options.prefix.as_bytes()) {
                continue;
            }
            match entry(&key, value, (codec, options.encryption.as_deref()), &leases)? {
                Some(entry) => drop(content.state.root.insert(entry.key.clone(), entry)),
                None if content.left_out.len() < MAX_LEFT_OUT => {
                    content.left_out.push(String::from_utf8_lossy(&key).into_owned());
                }
                None => {}
            }
        }
        Ok(content)
    }

    /// Writes a snapshot that `etcdutl snapshot restore` takes; its length.
    ///
    /// Errors: [`StorageError::Exists`]; [`StorageError::Io`], also when the disk is full. Nothing is left behind then.
    pub fn write_etcd_snapshot(
        &self,
        disk: &dyn Disk,
        path: &Path,
        codec: (&dyn RecordCodec, Option<&Encryption>),
        now: u64,
    ) -> Result<u64, StorageError> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".part");
        let draft = PathBuf::from(draft);
        let failed = || StorageError::io(format!("writing {}", path.display()));
        match disk.open(path, OpenMode::Read) {
            Ok(_) => return Err(StorageError::Exists(path.display().to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed()(error)),
        }
        match disk.remove(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
            Ok(()) | Err(_) => {}
        }
        let file = disk.open(&draft, OpenMode::CreateNew).map_err(failed())?;
        let written = self.put_snapshot(&*file, codec, now, path).and_then(|length| {
            file.sync_data().map_err(failed())?;
            disk.rename(&draft, path).map_err(failed())?;
            disk.sync_dir(parent(path)).map_err(failed())?;
            Ok(length)
        });
        if written.is_err()
            && let Err(error) = disk.remove(&draft)
        {
            tracing::debug!(path = %draft.display(), %error, "an unfinished snapshot stays");
        }
        written
    }

    fn put_snapshot(
        &self,
        file: &dyn DiskFile,
        (codec, encryption): (&dyn RecordCodec, Option<&Encryption>),
        now: u64,
        path: &Path,
    ) -> Result<u64, StorageError> {
        let failed = || StorageError::io(format!("writing {}", path.display()));
        let mut by_revision: Vec<&Arc<Entry>> = self.root.values().collect();
        by_revision.sort_by_key(|entry| entry.revision);
        let mut bolt = BoltWriter::new(OnFile(file));
        let mut leases = BTreeMap::new();
        let mut trees: HashMap<&str, Tree> = HashMap::new();
        let keys = trees.entry("key").or_default();
        for entry in &by_revision {
            if entry.record.is_sealed() {
                return Err(StorageError::Sealed {
                    key: entry.key.clone(),
                    cause: "identity transformer tried to read encrypted data".to_owned(),
                });
            }
            let value = codec.encode(&entry.key, &entry.record);
            let value = value.map_err(|cause| StorageError::Unreadable {
                key: entry.key.to_string(),
                cause,
            })?;
            let sealed = encryption.map_or(Ok(None), |encryption| encryption.seal(&entry.key, &value));
            let sealed = sealed.map_err(|cause| StorageError::NotSealed { cause })?;
            let value = sealed.map_or(value, |(stored, _)| stored);
            let lease = entry.expires.map_or(0, |end| lease_of(end, now, &mut leases));
            let stored = key_value(entry, value, lease).encode();
            bolt.put(keys, values::revision_key(entry.revision.0), stored)
                .map_err(failed())?;
        }
        if by_revision
            .last()
            .is_none_or(|last| last.revision < self.revision)
        {
            // As `etcdutl` bumps a revision: a change of nothing.
            let mark = values::revision_key(self.revision.0);
            bolt.put(keys, mark, Vec::new()).map_err(failed())?;
        }
        let granted = trees.entry("lease").or_default();
        for lease in leases.values() {
            let key = lease.id.to_be_bytes().to_vec();
            bolt.put(granted, key, lease.encode()).map_err(failed())?;
        }
        let compacted = values::revision_key(self.revision.0);
        let meta = trees.entry("meta").or_default();
        let index = 1_u64.to_be_bytes().to_vec();
        for (key, value) in [
            ("consistent_index", index.clone()),
            ("scheduledCompactRev", compacted),
            ("term", index),
        ] {
            bolt.put(meta, key.into(), value).map_err(failed())?;
        }
        for name in BUCKETS {
            bolt.bucket(name, trees.remove(name).unwrap_or_default())
                .map_err(failed())?;
        }
        let (_, length) = bolt.finish().map_err(failed())?;
        let digest = bolt_writer::digest(length, |at, buffer| file.read_at(at, buffer)).map_err(failed())?;
        file.write_at(length, &digest).map_err(failed())?;
        Ok(length + DIGEST_BYTES)
    }
}

struct OnFile<'a>(&'a dyn DiskFile);

impl Pages for OnFile<'_> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }
}

fn key_value(entry: &Entry, value: Vec<u8>, lease: u64) -> KeyValue {
    KeyValue {
        key: entry.key.as_str().into(),
        created: entry.created.0,
        modified: entry.revision.0,
        // How often it was changed is not known; etcd asks only for the first time.
        version: if entry.created == entry.revision { 1 } else { 2 },
        value,
        lease,
    }
}

/// The lease of what ends then, in a minute that it shares.
fn lease_of(end: u64, now: u64, leases: &mut BTreeMap<u64, Lease>) -> u64 {
    let left = end.saturating_sub(now).div_ceil(LEASE_SECONDS).max(1) * LEASE_SECONDS;
    let lease = leases.entry(left).or_insert(Lease {
        id: left,
        granted: left,
        remaining: 0,
    });
    lease.id
}

/// The length of the pages, once their digest was compared.
fn verified_length(path: &Path, file: &dyn DiskFile, skip: bool) -> Result<u64, StorageError> {
    let failed = || StorageError::io(format!("reading {}", path.display()));
    let corrupt = |found: &str| StorageError::Corrupt {
        file: path.display().to_string(),
        offset: 0,
        found: found.to_owned(),
    };
    let length = file.len().map_err(failed())?;
    if length % DIGEST_UNIT != DIGEST_BYTES {
        return if skip {
            Ok(length)
        } else {
            Err(corrupt(
                "the snapshot is cut off, or has no hash: --skip-hash-check takes a database copied from etcd's data directory",
            ))
        };
    }
    let pages = length - DIGEST_BYTES;
    let mut stored = [0; 32];
    let read = file.read_at(pages, &mut stored).map_err(failed())?;
    let digest = bolt_writer::digest(pages, |at, buffer| file.read_at(at, buffer)).map_err(failed())?;
    if !skip && (read != stored.len() || stored != digest) {
        return Err(corrupt("the hash of the snapshot does not match"));
    }
    Ok(pages)
}

/// End of each lease, in seconds since 1970.
fn leases(bolt: &mut BoltReader<'_>, now: u64) -> Result<HashMap<u64, u64>, StorageError> {
    let mut leases = HashMap::new();
    bolt.bucket("lease", &mut |_, value| {
        if let Ok(lease) = Lease::decode(value) {
            let left = if lease.remaining > 0 {
                lease.remaining
            } else {
                lease.granted
            };
            leases.insert(lease.id, now.saturating_add(left));
        }
        Ok(())
    })?;
    Ok(leases)
}

type Newest = BTreeMap<Vec<u8>, KeyValue>;

/// The newest version of every key that is there, and the last revision.
fn newest(bolt: &mut BoltReader<'_>) -> Result<(Newest, u64), StorageError> {
    let (mut newest, mut last) = (Newest::new(), 0);
    let mut damaged = None;
    bolt.bucket("key", &mut |key, value| {
        let change = values::read_revision_key(key).zip(KeyValue::decode(value).ok());
        let Some(((revision, is_deletion), kv)) = change else {
            damaged.get_or_insert("a change of the snapshot is damaged");
            return Ok(());
        };
        let is_possible =
            kv.key.is_empty() || is_deletion || kv.created <= kv.modified && kv.modified == revision;
        if revision > NUMBER_MAX || !is_possible {
            damaged.get_or_insert("a change of the snapshot has an impossible revision");
            return Ok(());
        }
        last = last.max(revision);
        if is_deletion {
            newest.remove(&kv.key);
        } else if !kv.key.is_empty() {
            newest.insert(kv.key.clone(), kv);
        }
        Ok(())
    })?;
    match damaged {
        Some(found) => Err(bolt.corrupt(0, found)),
        None => Ok((newest, last)),
    }
}

fn entry(
    key: &[u8],
    value: KeyValue,
    (codec, encryption): (&dyn RecordCodec, Option<&Encryption>),
    leases: &HashMap<u64, u64>,
) -> Result<Option<Arc<Entry>>, StorageError> {
    let text = std::str::from_utf8(key).unwrap_or_default();
    let Some(key) = Key::parse(text).ok().filter(|_| text.starts_with(REGISTRY)) else {
        return Ok(None);
    };
    let failed = |cause| StorageError::Sealed {
        key: key.clone(),
        cause,
    };
    let (plain, seal) = match encryption {
        Some(encryption) => encryption.open(&key, &value.value).map_err(failed)?,
        None => (value.value, Seal::default()),
    };
    let record = codec
        .decode(&key, &plain)
        .map_err(|cause| StorageError::Unreadable {
            key: key.to_string(),
            cause,
        })?;
    let record = match seal == Seal::default() {
        true => record,
        false => record.of_key(&key).map_err(failed)?,
    };
    Ok(Some(Arc::new(Entry {
        key,
        revision: Revision(value.modified),
        created: Revision(value.created),
        expires: leases.get(&value.lease).copied().filter(|_| value.lease != 0),
        record,
        seal,
    })))
}
