//! A bbolt file, read page by page. Nothing in it is believed: every position is compared with the file, no page is
//! visited twice, all of a bucket's have no more bytes than the file, and a tree is no deeper than any that bbolt makes.

use super::format::{
    BRANCH, BUCKET, Checksum, ELEMENT_BYTES, LEAF, MAGIC, META, META_BYTES, Meta, PAGE_HEADER_BYTES, VERSION,
};
use crate::StorageError;
use crate::backends::log::wire::{Malformed, Reader};
use machinery_runtime::DiskFile;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;

/// An open file.
pub(super) struct BoltReader<'a> {
    path: &'a Path,
    file: &'a dyn DiskFile,
    /// Of the pages; a digest may follow.
    length: u64,
    meta: Meta,
    visited: HashSet<u64>,
    /// Bytes of the pages that were visited.
    visited_bytes: u64,
}

const PAGE_SIZES: RangeInclusive<u32> = 512..=65_536;
/// Four keys to a branch would reach every page of any disk.
const MAX_DEPTH: usize = 32;
/// The largest page with those that continue it: etcd's largest request, many times.
const MAX_PAGE_BYTES: u64 = 256 << 20;
/// Root and sequence before the page of a small bucket.
const BUCKET_HEADER_BYTES: usize = 16;

/// One element of a page.
struct Element<'a> {
    flags: u32,
    key: &'a [u8],
    value: &'a [u8],
    child: u64,
}

type EachKey<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>;
type Each<'e> = &'e mut dyn FnMut(u32, &[u8], &[u8]) -> Result<(), StorageError>;

impl<'a> BoltReader<'a> {
    pub(super) fn open(path: &'a Path, file: &'a dyn DiskFile, length: u64) -> Result<Self, StorageError> {
        let mut own = Self {
            path,
            file,
            length,
            meta: Meta {
                page_bytes: 4096,
                root: 0,
                freelist: 0,
                pages: 0,
                transaction: 0,
            },
            visited: HashSet::new(),
            visited_bytes: 0,
        };
        let first = own.meta_at(0)?;
        // The second page begins where the first says; without a first one the usual sizes are tried.
        let sizes = first.map_or(vec![4096, 8192, 16_384, 65_536], |meta| vec![meta.page_bytes]);
        let mut second = None;
        for size in sizes {
            second = second.or(own
                .meta_at(u64::from(size))?
                .filter(|meta| meta.page_bytes == size));
        }
        let newest = first
            .into_iter()
            .chain(second)
            .max_by_key(|meta| meta.transaction);
        own.meta = newest.ok_or_else(|| own.corrupt(0, "the file is no database of etcd's, or damaged"))?;
        Ok(own)
    }

    fn meta_at(&self, offset: u64) -> Result<Option<Meta>, StorageError> {
        let bytes = self.read(offset, PAGE_HEADER_BYTES + META_BYTES + 8)?;
        let parse = || -> Result<Option<Meta>, Malformed> {
            let mut reader = Reader::new(&bytes);
            reader.take(8)?;
            let flags = reader.take(2)?;
            reader.take(6)?;
            let (magic, version, page_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
            reader.take(4)?;
            let root = reader.u64()?;
            reader.take(8)?;
            let meta = Meta {
                page_bytes,
                root,
                freelist: reader.u64()?,
                pages: reader.u64()?,
                transaction: reader.u64()?,
            };
            let summed = &bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + META_BYTES];
            let is_valid = flags == META.to_le_bytes()
                && (magic, version) == (MAGIC, VERSION)
                && PAGE_SIZES.contains(&page_bytes)
                && page_bytes.is_power_of_two()
                && reader.u64()? == Checksum::of(summed);
            Ok(is_valid.then_some(meta))
        };
        Ok(parse().unwrap_or(None))
    }

    /// Calls `each` for every key of a bucket, in their order; nothing where there is no such bucket.
    pub(super) fn bucket(&mut self, name: &str, each: EachKey<'_>) -> Result<(), StorageError> {
        let mut found = None;
        self.begin();
        self.walk(self.meta.root, 0, &mut |flags, key, value| {
            if flags & BUCKET != 0 && key == name.as_bytes() {
                found = Some(value.to_vec());
            }
            Ok(())
        })?;
        let Some(value) = found else { return Ok(()) };
        let root = value.first_chunk::<8>().map(|root| u64::from_le_bytes(*root));
        let root = root.ok_or_else(|| self.corrupt(0, "a bucket is too short"))?;
        self.begin();
        let mut plain = |_: u32, key: &[u8], value: &[u8]| each(key, value);
        if root != 0 {
            return self.walk(root, 0, &mut plain);
        }
        let page = value.get(BUCKET_HEADER_BYTES..).unwrap_or_default();
        self.elements(page, 0, 0, &mut plain)
    }

    fn begin(&mut self) {
        self.visited.clear();
        self.visited_bytes = 0;
    }

    fn walk(&mut self, id: u64, depth: usize, each: Each<'_>) -> Result<(), StorageError> {
        let size = u64::from(self.meta.page_bytes);
        let offset = id.checked_mul(size).filter(|offset| *offset < self.length);
        let offset = offset.ok_or_else(|| self.corrupt(0, "a page is behind the end of the file"))?;
        if !self.visited.insert(id) || depth > MAX_DEPTH {
            return Err(self.corrupt(offset, "a page is its own child"));
        }
        let head = self.read(offset, PAGE_HEADER_BYTES)?;
        let blocks = head
            .last_chunk::<4>()
            .map_or(0, |count| u32::from_le_bytes(*count));
        let bytes = (u64::from(blocks) + 1) * size;
        let own = head.first_chunk::<8>().map(|own| u64::from_le_bytes(*own));
        if own != Some(id) || bytes > MAX_PAGE_BYTES || bytes > self.length - offset {
            return Err(self.corrupt(offset, "the header of a page is damaged"));
        }
        // Pages that share bytes would make a file of a megabyte many gigabytes.
        self.visited_bytes = self.visited_bytes.saturating_add(bytes);
        if self.visited_bytes > self.length {
            return Err(self.corrupt(offset, "pages share their bytes"));
        }
        let page = self.read(offset, usize::try_from(bytes).unwrap_or(0))?;
        self.elements(&page, offset, depth, each)
    }

    fn elements(
        &mut self,
        page: &[u8],
        offset: u64,
        depth: usize,
        each: Each<'_>,
    ) -> Result<(), StorageError> {
        let damaged = |_| self.corrupt(offset, "the header of a page is damaged");
        let (flags, count) = head_of(page).map_err(damaged)?;
        let mut bytes = 0;
        for at in 0..count {
            let damaged = |_| self.corrupt(offset, "an element of a page is damaged");
            let element = element(page, flags, at).map_err(damaged)?;
            // Elements that share bytes would make a page of a megabyte many gigabytes.
            bytes += ELEMENT_BYTES + element.key.len() + element.value.len();
            if bytes > page.len() {
                return Err(self.corrupt(offset, "elements of a page share their bytes"));
            }
            if flags == LEAF {
                each(element.flags, element.key, element.value)?;
            } else {
                self.walk(element.child, depth + 1, each)?;
            }
        }
        Ok(())
    }

    fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>, StorageError> {
        let mut bytes = vec![0; count];
        let read = self.file.read_at(offset, &mut bytes);
        let read = read.map_err(StorageError::io(format!("reading {}", self.path.display())))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    pub(super) fn corrupt(&self, offset: u64, found: &str) -> StorageError {
        StorageError::Corrupt {
            file: self.path.display().to_string(),
            offset,
            found: found.to_owned(),
        }
    }
}

/// Kind and number of elements.
fn head_of(page: &[u8]) -> Result<(u16, usize), Malformed> {
    let word = |at: usize| {
        let bytes = page.get(at..).and_then(<[u8]>::first_chunk::<2>);
        bytes
            .map(|bytes| u16::from_le_bytes(*bytes))
            .ok_or(Malformed("a page is too short"))
    };
    let flags = word(8)?;
    if flags != LEAF && flags != BRANCH {
        return Err(Malformed("a page is neither leaf nor branch"));
    }
    Ok((flags, usize::from(word(10)?)))
}

fn element(page: &[u8], flags: u16, at: usize) -> Result<Element<'_>, Malformed> {
    let start = PAGE_HEADER_BYTES + at * ELEMENT_BYTES;
    let header = page
        .get(start..start + ELEMENT_BYTES)
        .ok_or(Malformed("cut off"))?;
    let mut reader = Reader::new(header);
    let (own_flags, position, key_bytes, value_bytes, child) = if flags == LEAF {
        (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?, 0)
    } else {
        (0, reader.u32()?, reader.u32()?, 0, reader.u64()?)
    };
    let key_start = start + position as usize;
    let value_start = key_start + key_bytes as usize;
    let end = value_start + value_bytes as usize;
    Ok(Element {
        flags: own_flags,
        key: page.get(key_start..value_start).ok_or(Malformed("cut off"))?,
        value: page.get(value_start..end).ok_or(Malformed("cut off"))?,
        child,
    })
}
