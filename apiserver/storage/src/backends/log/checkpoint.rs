//! The whole state as of one batch, in one file, so that recovery reads little log.
//!
//! Records in key order, then an index (where each run of about 64 KiB begins, with its first key), then where the index
//! is. It is written under another name, synced and renamed; a file without a valid end is not a checkpoint.

use super::format::{self, CheckpointHeader, FileHeader, HeaderError, SECTOR, Stored};
use super::seal;
use super::seals::Seals;
use super::verified::{Verified, past_cache};
use super::wire::{Malformed, Put, Reader};
use crate::encryption::Encryption;
use crate::live::Root;
use crate::{Entry, Key, Prefix, StorageError};
use machinery_meta::Revision;
use machinery_runtime::{Disk, DiskFile, OpenMode};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A complete checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pub(super) header: CheckpointHeader,
    pub(super) path: PathBuf,
    pub(super) entries: u64,
    /// Keys of its records: those that were written by this process, or read as the state that it began with.
    pub(super) seals: Arc<Seals>,
    file: Box<dyn DiskFile>,
    pub(super) blocks: Vec<Block>,
    /// End of the last block.
    end: u64,
}

/// A run of records, as the index has it.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) first: Key,
}

/// A checkpoint being written.
#[derive(Debug)]
pub(super) struct CheckpointWriter {
    header: CheckpointHeader,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    draft: PathBuf,
    file: Box<dyn DiskFile>,
    root: Root,
    encryption: Option<Arc<Encryption>>,
    seals: Arc<Seals>,
    last: Option<Key>,
    offset: u64,
    entries: u64,
    blocks: Vec<Block>,
}

const BLOCK_BYTES: usize = 64 << 10;
/// Bytes written in one step: few enough that other work on the disk does not wait for it.
const STEP_BYTES: usize = 256 << 10;
const END_MAGIC: u64 = 0x444e_4550_4b43_4e4b;
const END_BYTES: usize = 40;

impl Checkpoint {
    fn final_path(dir: &Path, revision: u64) -> PathBuf {
        dir.join(format!("checkpoint-{revision:016x}.ckpt"))
    }

    fn draft_path(dir: &Path, revision: u64) -> PathBuf {
        dir.join(format!("checkpoint-{revision:016x}.tmp"))
    }

    /// The revision in a checkpoint's file name.
    pub(super) fn revision_of(name: &str) -> Option<u64> {
        u64::from_str_radix(name.strip_prefix("checkpoint-")?.strip_suffix(".ckpt")?, 16).ok()
    }

    /// Reports whether the name is that of a checkpoint that was never finished.
    pub(super) fn is_draft(name: &str) -> bool {
        name.starts_with("checkpoint-") && name.ends_with(".tmp")
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.header.revision)
    }

    /// Bytes of its records.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// Opens a checkpoint and reads its index.
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, StorageError> {
        let failed = || StorageError::io(format!("reading {}", path.display()));
        let corrupt = |offset, found: &str| corrupt(path, offset, found);
        let file = disk.open(path, OpenMode::Read).map_err(failed())?;
        let length = file.len().map_err(failed())?;
        let read = |offset: u64, count: usize| {
            let mut buffer = vec![0; count];
            let got = file.read_at(offset, &mut buffer).map_err(failed())?;
            buffer.truncate(got);
            Ok::<_, StorageError>(buffer)
        };
        let header = match FileHeader::decode(&read(0, SECTOR)?) {
            Ok(FileHeader::Checkpoint(header)) => header,
            Err(HeaderError::Unknown(found)) => return Err(format::unknown_version(path, found)),
            Ok(_) | Err(HeaderError::Blank | HeaderError::Damaged) => {
                return Err(corrupt(0, "the header of a checkpoint is damaged"));
            }
        };
        let end_at = length.saturating_sub(END_BYTES as u64);
        let (index_at, entries) =
            read_end(&read(end_at, END_BYTES)?).map_err(|found| corrupt(end_at, found.0))?;
        let index_bytes = usize::try_from(end_at.saturating_sub(index_at)).unwrap_or(0);
        let index = read(index_at, index_bytes)?;
        let blocks = read_index(&index).map_err(|found| corrupt(index_at, found.0))?;
        Ok(Self {
            header,
            path: path.to_owned(),
            entries,
            seals: Arc::default(),
            file,
            blocks,
            end: index_at,
        })
    }

    /// Every entry, in the order of keys.
    pub(super) fn each(&self, mut each: impl FnMut(Arc<Entry>)) -> Result<(), StorageError> {
        let mut count = 0;
        for block in 0..self.blocks.len() {
            for entry in self.block(block)? {
                count += 1;
                each(entry);
            }
        }
        // The count notices what no checksum does: a block that is missing as a whole.
        if count == self.entries {
            Ok(())
        } else {
            Err(corrupt(&self.path, self.end, "entries are missing"))
        }
    }

    /// Reads blocks again from the one at position `at` on, about so many bytes of them.
    pub(super) fn verify_some(&self, at: u64, at_most: u64) -> Result<Verified, StorageError> {
        if at == 0 {
            // Past the page cache: the scrub is to read what the disk has, and must not push out what readers
            // use.
            past_cache(&*self.file, (0, SECTOR as u64), || self.verify_header())?;
        }
        let mut at = usize::try_from(at).unwrap_or(usize::MAX);
        let start = self.blocks.get(at).map_or(self.end, |block| block.offset);
        let mut bytes = 0;
        while at < self.blocks.len() && bytes < at_most {
            let offset = self.blocks[at].offset;
            let end = self.blocks.get(at + 1).map_or(self.end, |next| next.offset);
            past_cache(&*self.file, (offset, end - offset), || self.block(at))?;
            at += 1;
            bytes = self.blocks.get(at).map_or(self.end, |next| next.offset) - start;
        }
        Ok(Verified {
            bytes,
            next: (at < self.blocks.len()).then_some(at as u64),
        })
    }

    fn verify_header(&self) -> Result<(), StorageError> {
        let failed = || StorageError::io(format!("reading {}", self.path.display()));
        let mut sector = vec![0; SECTOR];
        let read = self.file.read_at(0, &mut sector).map_err(failed())?;
        if FileHeader::decode(&sector[..read]) != Ok(FileHeader::Checkpoint(self.header)) {
            return Err(corrupt(&self.path, 0, "the header of a checkpoint is damaged"));
        }
        let length = self.file.len().map_err(failed())?;
        let mut index = vec![0; usize::try_from(length.saturating_sub(self.end)).unwrap_or(0)];
        let read = self.file.read_at(self.end, &mut index).map_err(failed())?;
        let (index, end) = index[..read].split_at(read.saturating_sub(END_BYTES));
        let whole = read_index(index).and_then(|_| read_end(end).map(drop));
        whole.map_err(|found| corrupt(&self.path, self.end, found.0))
    }

    /// Calls `each` for the entries below a prefix, in the order of keys, until it says `false`.
    pub(super) fn below(
        &self,
        prefix: &Prefix,
        mut each: impl FnMut(Arc<Entry>) -> bool,
    ) -> Result<(), StorageError> {
        let end = prefix.end();
        for block in self.block_for(prefix.as_str())..self.blocks.len() {
            // Blocks are in the order of keys, so no later one has an entry below the prefix.
            if self.blocks[block].first.as_str() >= end.as_str() {
                break;
            }
            let mut entries = self.block(block)?.into_iter();
            if !entries.all(|entry| !prefix.contains(&entry.key) || each(entry)) {
                break;
            }
        }
        Ok(())
    }

    /// Calls `each` for the entries at these keys, which are in order. Each block is read once.
    pub(super) fn read_at(
        &self,
        keys: &[&Key],
        mut each: impl FnMut(Arc<Entry>),
    ) -> Result<(), StorageError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let mut read: Option<(usize, Vec<Arc<Entry>>)> = None;
        for key in keys {
            let at = self.block_for(key.as_str());
            let block = match read.take() {
                Some((own, block)) if own == at => block,
                _ => self.block(at)?,
            };
            if let Ok(found) = block.binary_search_by(|entry| entry.key.cmp(key)) {
                each(Arc::clone(&block[found]));
            }
            read = Some((at, block));
        }
        Ok(())
    }

    /// The block a key would be in.
    fn block_for(&self, key: &str) -> usize {
        self.blocks
            .partition_point(|block| block.first.as_str() <= key)
            .saturating_sub(1)
    }

    pub(super) fn block_bytes(&self, at: usize) -> Result<Vec<u8>, StorageError> {
        let start = self.blocks[at].offset;
        let end = self.blocks.get(at + 1).map_or(self.end, |next| next.offset);
        let size = usize::try_from(end.saturating_sub(start)).expect("a block fits in memory");
        let mut bytes = vec![0; size];
        let read = self.file.read_at(start, &mut bytes);
        let read = read.map_err(StorageError::io(format!("reading {}", self.path.display())))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn block(&self, at: usize) -> Result<Vec<Arc<Entry>>, StorageError> {
        let start = self.blocks[at].offset;
        let bytes = self.block_bytes(at)?;
        let entries = read_block(&bytes);
        let entries = entries.map_err(|(at, found)| corrupt(&self.path, start + at as u64, found.0))?;
        if entries
            .first()
            // Both parts have valid checksums; a block that was written to the wrong place has so too, and is
            // found only here.
            .is_none_or(|entry| entry.key != self.blocks[at].first)
        {
            return Err(corrupt(&self.path, start, "a block does not begin with its key"));
        }
        Ok(entries)
    }
}

pub(super) fn corrupt(path: &Path, offset: u64, found: &str) -> StorageError {
    StorageError::Corrupt {
        file: path.display().to_string(),
        offset,
        found: found.to_owned(),
    }
}

/// Errors: where the record begins that is damaged.
fn read_block(bytes: &[u8]) -> Result<Vec<Arc<Entry>>, (usize, Malformed)> {
    let mut reader = Reader::new(bytes);
    let mut out = Vec::new();
    while !reader.is_empty() {
        let at = bytes.len() - reader.left();
        match format::take_stored(&mut reader).map_err(|found| (at, found))?.0 {
            Stored::Put { entry, .. } => out.push(entry),
            Stored::Delete { .. } | Stored::Compact { .. } => {
                return Err((at, Malformed("a checkpoint holds something else than entries")));
            }
        }
    }
    Ok(out)
}

/// Offset of the index, and number of its entries.
fn read_end(bytes: &[u8]) -> Result<(u64, u64), Malformed> {
    let (body, checksum) = bytes
        .split_last_chunk::<4>()
        .ok_or(Malformed("a checkpoint has no end"))?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(Malformed("the end of a checkpoint is damaged"));
    }
    let mut reader = Reader::new(body);
    if reader.u64()? != END_MAGIC {
        return Err(Malformed("a checkpoint has no end"));
    }
    Ok((reader.u64()?, reader.u64()?))
}

fn read_index(bytes: &[u8]) -> Result<Vec<Block>, Malformed> {
    let (body, checksum) = bytes
        .split_last_chunk::<4>()
        .ok_or(Malformed("a checkpoint has no index"))?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(Malformed("the index of a checkpoint is damaged"));
    }
    let mut reader = Reader::new(body);
    let mut blocks = Vec::new();
    while !reader.is_empty() {
        let offset = reader.varint()?;
        let first = Key::parse(reader.str()?).map_err(|_| Malformed("a key is not a path"))?;
        blocks.push(Block { offset, first });
    }
    Ok(blocks)
}

impl CheckpointWriter {
    /// Begins a checkpoint of a pinned root.
    pub(super) fn begin(
        disk: Arc<dyn Disk>,
        dir: &Path,
        header: CheckpointHeader,
        state: (Root, Option<Arc<Encryption>>),
    ) -> Result<Self, StorageError> {
        let draft = Checkpoint::draft_path(dir, header.revision);
        Self::begin_as(disk, dir, draft, header, state)
    }

    /// The same in a blank file that has the room for it.
    pub(super) fn begin_in(
        disk: Arc<dyn Disk>,
        dir: &Path,
        blank: &Path,
        header: CheckpointHeader,
        state: (Root, Option<Arc<Encryption>>),
    ) -> Result<Self, StorageError> {
        let draft = Checkpoint::draft_path(dir, header.revision);
        let failed = StorageError::io(format!("renaming {}", blank.display()));
        // Before anything is written, and before it is renamed again: it has one name at any time.
        let renamed = disk.rename(blank, &draft).and_then(|()| disk.sync_dir(dir));
        renamed.map_err(failed)?;
        Self::begin_at(disk, dir, (draft, OpenMode::ReadWrite), header, state)
    }

    /// The same with a name of the caller's until it is finished.
    pub(super) fn begin_as(
        disk: Arc<dyn Disk>,
        dir: &Path,
        path: PathBuf,
        header: CheckpointHeader,
        state: (Root, Option<Arc<Encryption>>),
    ) -> Result<Self, StorageError> {
        Self::begin_at(disk, dir, (path, OpenMode::CreateNew), header, state)
    }

    fn begin_at(
        disk: Arc<dyn Disk>,
        dir: &Path,
        (path, mode): (PathBuf, OpenMode),
        header: CheckpointHeader,
        (root, encryption): (Root, Option<Arc<Encryption>>),
    ) -> Result<Self, StorageError> {
        let failed = || StorageError::io(format!("creating {}", path.display()));
        let file = disk.open(&path, mode).map_err(failed())?;
        if let Err(error) = file.write_at(0, &FileHeader::Checkpoint(header).encode()) {
            // A draft that stays would be in the way of the next one.
            disk.remove(&path).map_err(failed())?;
            return Err(failed()(error));
        }
        let dir = dir.to_owned();
        Ok(Self {
            header,
            disk,
            dir,
            draft: path,
            file,
            root,
            encryption,
            seals: Arc::default(),
            last: None,
            offset: SECTOR as u64,
            entries: 0,
            blocks: Vec::new(),
        })
    }

    /// Keys of the records that were written so far.
    pub(super) fn seals(&self) -> Arc<Seals> {
        Arc::clone(&self.seals)
    }

    /// Writes a little more; the checkpoint once it is complete and durable.
    pub(super) fn step(&mut self) -> Result<Option<Checkpoint>, StorageError> {
        let encryption = self.encryption.clone();
        let encryption = encryption.as_deref();
        // Until its keys are noted.
        let unchanged = encryption.map(Encryption::hold);
        let mut out = Vec::with_capacity(STEP_BYTES + BLOCK_BYTES);
        let start = self
            .last
            .as_ref()
            .map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_str()));
        let mut block_end = 0;
        let mut last = None;
        // From the last key and not by position: the root is immutable, and a step keeps no iterator (nor a
        // lock) between calls.
        for (key, entry) in self.root.range((start, Bound::Unbounded)) {
            if out.len() >= block_end {
                if out.len() >= STEP_BYTES {
                    break;
                }
                self.blocks.push(Block {
                    offset: self.offset + out.len() as u64,
                    first: key.clone(),
                });
                block_end = out.len() + BLOCK_BYTES;
            }
            let entry = seal::sealed(encryption, entry)?;
            self.seals.note(encryption, &entry);
            let stored = Stored::Put {
                entry,
                previous: Revision::ZERO,
            };
            format::put_stored(&mut out, &stored, true);
            self.entries += 1;
            last = Some(key.clone());
        }
        drop(unchanged);
        if let Some(last) = last {
            self.write(&out)?;
            self.last = Some(last);
            return Ok(None);
        }
        self.finish().map(Some)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let failed = StorageError::io(format!("writing a checkpoint in {}", self.dir.display()));
        self.file.write_at(self.offset, bytes).map_err(failed)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<Checkpoint, StorageError> {
        let index_at = self.offset;
        let mut out = Vec::new();
        for block in &self.blocks {
            out.put_varint(block.offset);
            out.put_bytes(block.first.as_str().as_bytes());
        }
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        let end_at = out.len();
        for number in [END_MAGIC, index_at, self.entries] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(end_at + END_BYTES - 4, 0);
        let checksum = crc32c::crc32c(&out[end_at..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        self.write(&out)?;
        let path = Checkpoint::final_path(&self.dir, self.header.revision);
        let failed = || StorageError::io(format!("finishing {}", path.display()));
        if self.file.len().map_err(failed())? > self.offset {
            // The end of the file is the end of a checkpoint.
            self.file.truncate(self.offset).map_err(failed())?;
        }
        self.file.sync_data().map_err(failed())?;
        // Content, name, directory, in this order: a file under its final name is always complete, also after a
        // power loss.
        self.disk.rename(&self.draft, &path).map_err(failed())?;
        self.disk.sync_dir(&self.dir).map_err(failed())?;
        Ok(Checkpoint {
            seals: self.seals(),
            ..Checkpoint::open(&*self.disk, &path)?
        })
    }

    /// Ends it; the file of what was written so far.
    pub(super) fn into_draft(self) -> PathBuf {
        self.draft
    }

    /// Removes what was written so far.
    pub(super) fn abandon(self) {
        if let Err(error) = self.disk.remove(&self.draft) {
            tracing::warn!(path = %self.draft.display(), %error, "cannot remove an unfinished checkpoint");
        }
    }
}
