//! One consistent revision in one stream of bytes, and back.
//!
//! A sector of header says the revision and how many objects follow; they come as records, in the order of their keys;
//! then a mark and the SHA-256 of all bytes before it. Records hold what the log holds: what is encrypted at rest stays
//! encrypted. A backup pins the state it began with and is made piece by piece, as its reader requests it.

use super::format::{self, BackupHeader, FileHeader, HeaderError, RECORD_PREFIX_BYTES, SECTOR, Stored};
use super::seal;
use super::wire::{Malformed, Reader};
use crate::encryption::Encryption;
use crate::live::Root;
use crate::{Entry, Key, StorageError};
use bytes::Bytes;
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskFile, OpenMode};
use sha2::{Digest, Sha256};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A backup being made.
#[derive(Debug)]
pub struct Backup {
    header: BackupHeader,
    root: Root,
    /// Bytes of all records, about.
    bytes: u64,
    part: Part,
    digest: Sha256,
    encryption: Option<Arc<Encryption>>,
    /// The one backup that a running log makes at a time.
    #[expect(dead_code, reason = "held until the backup ends")]
    permit: Option<tokio::sync::OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Part {
    Header,
    /// Objects behind this key.
    Objects(Option<Key>),
    End,
    Done,
}

/// The objects of a backup, all of its bytes verified.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) header: BackupHeader,
    pub(super) root: Root,
}

/// Bytes of one piece, about; a large record makes it larger.
const PIECE_BYTES: usize = 256 << 10;
const END_MAGIC: u64 = 0x444e_454b_4142_4e4b;
const DIGEST_BYTES: usize = 32;
const END_BYTES: usize = 8 + DIGEST_BYTES;

impl Backup {
    pub(super) fn of(
        store: u64,
        (revision, root, bytes): (Revision, Root, u64),
        encryption: Option<Arc<Encryption>>,
        permit: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            header: BackupHeader {
                store,
                revision: revision.0,
                entries: root.len() as u64,
            },
            root,
            bytes,
            part: Part::Header,
            digest: Sha256::new(),
            encryption,
            permit,
        }
    }

    /// The revision of every object in it.
    pub fn revision(&self) -> Revision {
        Revision(self.header.revision)
    }

    /// Number of objects in the backup.
    pub fn objects(&self) -> u64 {
        self.header.entries
    }

    /// Length in bytes, about, for callers that bound the time that a reader may take.
    pub fn estimated_bytes(&self) -> u64 {
        const BESIDE: u64 = 128;
        self.bytes + self.header.entries * BESIDE
    }

    /// The next bytes; `None` behind the last.
    pub fn next_piece(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        self.part = match std::mem::replace(&mut self.part, Part::Done) {
            Part::Header => {
                piece = FileHeader::Backup(self.header).encode();
                Part::Objects(None)
            }
            Part::Objects(after) => match self.put_objects(after.as_ref(), &mut piece) {
                Some(last) => Part::Objects(Some(last)),
                None => Part::End,
            },
            Part::End | Part::Done => Part::Done,
        };
        if let Part::End = self.part {
            // Nothing of the state is needed any more, however slowly the end is read.
            self.root = Root::default();
            piece.extend_from_slice(&END_MAGIC.to_le_bytes());
        }
        self.digest.update(&piece);
        if let Part::End = self.part {
            piece.extend_from_slice(&self.digest.clone().finalize());
        }
        (!piece.is_empty()).then(|| Bytes::from(piece))
    }

    /// The last key that was put; `None` when there are no more.
    fn put_objects(&self, after: Option<&Key>, piece: &mut Vec<u8>) -> Option<Key> {
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let mut last = None;
        for (key, entry) in self.root.range((start, Bound::Unbounded)) {
            if piece.len() >= PIECE_BYTES {
                break;
            }
            let sealed = seal::sealed(self.encryption.as_deref(), entry);
            let stored = Stored::Put {
                entry: sealed.expect("a backup begins once every plugin has given its key"),
                previous: Revision::ZERO,
            };
            format::put_stored(piece, &stored, true);
            last = Some(key.clone());
        }
        last
    }
}

/// Writes a backup to a file, which gets its name when it is complete and durable.
///
/// Errors: [`StorageError::Exists`]; [`StorageError::Io`], also when the disk is full. Nothing is left behind then.
pub fn write_backup(
    disk: &dyn Disk,
    path: &Path,
    mut next_piece: impl FnMut() -> Result<Option<Bytes>, StorageError>,
) -> Result<u64, StorageError> {
    let mut draft = BackupFile::begin(disk, path)?;
    loop {
        match next_piece() {
            Ok(Some(piece)) => draft.write(&piece)?,
            Ok(None) => return draft.finish(),
            Err(error) => {
                draft.abandon();
                return Err(error);
            }
        }
    }
}

/// A file being written under another name.
#[derive(Debug)]
pub struct BackupFile<'a> {
    disk: &'a dyn Disk,
    path: PathBuf,
    draft: PathBuf,
    file: Box<dyn DiskFile>,
    length: u64,
}

impl<'a> BackupFile<'a> {
    /// Begins it; what an earlier attempt has left is replaced.
    pub fn begin(disk: &'a dyn Disk, path: &Path) -> Result<Self, StorageError> {
        let failed = || StorageError::io(format!("creating {}", path.display()));
        match disk.open(path, OpenMode::Read) {
            Ok(_) => return Err(StorageError::Exists(path.display().to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed()(error)),
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(".part");
        let draft = PathBuf::from(draft);
        match disk.remove(&draft) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed()(error)),
            Ok(()) | Err(_) => {}
        }
        let file = disk.open(&draft, OpenMode::CreateNew).map_err(failed())?;
        Ok(Self {
            disk,
            path: path.to_owned(),
            draft,
            file,
            length: 0,
        })
    }

    /// Appends. After an error nothing is left.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), StorageError> {
        if let Err(error) = self.file.write_at(self.length, piece) {
            self.abandon();
            return Err(self.failed(error));
        }
        self.length += piece.len() as u64;
        Ok(())
    }

    /// Reads all of it again, makes it durable and gives it its name. Its length.
    ///
    /// Errors: [`StorageError::Corrupt`] when it is not a whole backup, as after a connection that broke.
    pub fn finish(mut self) -> Result<u64, StorageError> {
        let finished = self.check_and_name();
        if finished.is_err() {
            self.abandon();
        }
        finished.map(|()| self.length)
    }

    fn check_and_name(&mut self) -> Result<(), StorageError> {
        read_file(&self.draft, &*self.file)?;
        self.file.sync_data().map_err(|error| self.failed(error))?;
        let named = self.disk.rename(&self.draft, &self.path);
        named.map_err(|error| self.failed(error))?;
        let synced = self.disk.sync_dir(parent(&self.path));
        synced.map_err(|error| self.failed(error))
    }

    /// Removes what was written.
    pub fn abandon(&mut self) {
        if let Err(error) = self.disk.remove(&self.draft) {
            tracing::debug!(path = %self.draft.display(), %error, "an unfinished backup stays");
        }
    }

    fn failed(&self, error: std::io::Error) -> StorageError {
        StorageError::io(format!("writing {}", self.path.display()))(error)
    }
}

/// The folder of a file; where the process is, for a bare name.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Reads a backup and verifies all of it.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> Result<Content, StorageError> {
    let failed = StorageError::io(format!("reading {}", path.display()));
    let file = disk.open(path, OpenMode::Read).map_err(failed)?;
    read_file(path, &*file)
}

fn read_file(path: &Path, file: &dyn DiskFile) -> Result<Content, StorageError> {
    let mut bytes = Window {
        path,
        file,
        start: 0,
        held: Vec::new(),
        passed: 0,
        digest: Sha256::new(),
    };
    let header = bytes.header()?;
    let mut root = Root::default();
    for _ in 0..header.entries {
        let at = bytes.start;
        let entry = bytes.entry()?;
        let follows = root.last().is_none_or(|last| *last < entry.key);
        if !follows || entry.revision.0 > header.revision || entry.created > entry.revision {
            return Err(bytes.corrupt(at, "an object is out of order"));
        }
        root.insert(entry.key.clone(), entry);
    }
    bytes.end()?;
    Ok(Content { header, root })
}

/// The part of a file that is looked at.
struct Window<'a> {
    path: &'a Path,
    file: &'a dyn DiskFile,
    /// Offset of the next byte in the file.
    start: u64,
    held: Vec<u8>,
    /// So many of the held bytes are passed.
    passed: usize,
    digest: Sha256,
}

impl Window<'_> {
    /// Reads ahead at least so many bytes; fewer at the end of the file.
    fn look(&mut self, count: usize) -> Result<&[u8], StorageError> {
        if self.held.len() - self.passed < count {
            self.held.drain(..self.passed);
            self.passed = 0;
            let had = self.held.len();
            self.held.resize(had + (count - had).max(PIECE_BYTES), 0);
            let read = self.file.read_at(self.start + had as u64, &mut self.held[had..]);
            let failed = StorageError::io(format!("reading {}", self.path.display()));
            self.held.truncate(had + read.map_err(failed)?);
        }
        Ok(&self.held[self.passed..])
    }

    fn pass(&mut self, count: usize) {
        self.digest.update(&self.held[self.passed..self.passed + count]);
        self.passed += count;
        self.start += count as u64;
    }

    fn header(&mut self) -> Result<BackupHeader, StorageError> {
        let held = self.look(SECTOR)?;
        let header = FileHeader::decode(&held[..held.len().min(SECTOR)]);
        match header {
            Ok(FileHeader::Backup(header)) => {
                self.pass(SECTOR);
                Ok(header)
            }
            Err(HeaderError::Unknown(found)) => Err(format::unknown_version(self.path, found)),
            Ok(_) | Err(HeaderError::Blank | HeaderError::Damaged) => {
                Err(self.corrupt(0, "the file is not a backup, or its header is damaged"))
            }
        }
    }

    fn entry(&mut self) -> Result<Arc<Entry>, StorageError> {
        let prefix = self.look(RECORD_PREFIX_BYTES)?;
        let length = prefix
            .first_chunk::<4>()
            .map(|length| u32::from_le_bytes(*length));
        let length = length.unwrap_or_default() as usize;
        if length > format::MAX_STORED_RECORD_BYTES {
            return Err(self.corrupt(self.start, "a record's length is impossible"));
        }
        let whole = RECORD_PREFIX_BYTES + length;
        let held = self.look(whole)?;
        let stored = format::take_stored(&mut Reader::new(&held[..held.len().min(whole)]));
        match stored {
            Ok((Stored::Put { entry, .. }, _)) => {
                self.pass(whole);
                Ok(entry)
            }
            Err(Malformed(format::NEWER_RECORD)) => {
                Err(format::unknown_version(self.path, format::FORMAT_VERSION + 1))
            }
            Err(Malformed(found)) => Err(self.corrupt(self.start, found)),
            Ok(_) => Err(self.corrupt(self.start, "a backup holds something else than objects")),
        }
    }

    fn end(&mut self) -> Result<(), StorageError> {
        let held = self.look(END_BYTES + 1)?;
        let at_mark = held.starts_with(&END_MAGIC.to_le_bytes()) && held.len() == END_BYTES;
        if !at_mark {
            return Err(self.corrupt(self.start, "the end of the backup is missing or is not its end"));
        }
        self.pass(8);
        if self.held[self.passed..] != self.digest.clone().finalize()[..] {
            return Err(self.corrupt(0, "the checksum of the backup does not match"));
        }
        Ok(())
    }

    fn corrupt(&self, offset: u64, found: &str) -> StorageError {
        StorageError::Corrupt {
            file: self.path.display().to_string(),
            offset,
            found: found.to_owned(),
        }
    }
}
