//! A bbolt file written once, front to back: the pages of one tree after the other, the metas last.
//!
//! Keys come in their order, so a tree is built from its leaves up, and nothing but the first key of each page is kept.

use super::format::{
    BRANCH, BUCKET, Checksum, ELEMENT_BYTES, FREELIST, LEAF, META, Meta, PAGE_BYTES, PAGE_HEADER_BYTES,
};
use sha2::{Digest, Sha256};
use std::io;

/// Storage of pages, written in any order.
pub(super) trait Pages {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A file being written.
#[derive(Debug)]
pub(super) struct BoltWriter<P> {
    pages: P,
    /// The next free page.
    next: u64,
    buckets: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The tree of one bucket being written, its keys in order.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Elements of the leaf being filled: flags, key and value.
    leaf: Vec<(u32, Vec<u8>, Vec<u8>)>,
    leaf_bytes: usize,
    /// First key and number of the pages of the level above.
    above: Vec<(Vec<u8>, u64)>,
}

/// Metas and the list of free pages, which is empty.
const FIRST_TREE_PAGE: u64 = 3;
const FREELIST_PAGE: u64 = 2;
/// bbolt counts the elements of a page in 16 bits, and gives the largest number a meaning of its own.
const MAX_ELEMENTS: usize = 0xfff0;

impl<P: Pages> BoltWriter<P> {
    pub(super) fn new(pages: P) -> Self {
        Self {
            pages,
            next: FIRST_TREE_PAGE,
            buckets: Vec::new(),
        }
    }

    /// Puts the next key of a tree.
    pub(super) fn put(&mut self, tree: &mut Tree, key: Vec<u8>, value: Vec<u8>) -> io::Result<()> {
        self.put_flagged(tree, 0, key, value)
    }

    fn put_flagged(&mut self, tree: &mut Tree, flags: u32, key: Vec<u8>, value: Vec<u8>) -> io::Result<()> {
        let bytes = ELEMENT_BYTES + key.len() + value.len();
        let is_full = PAGE_HEADER_BYTES + tree.leaf_bytes + bytes > PAGE_BYTES;
        if is_full && !tree.leaf.is_empty() {
            self.flush_leaf(tree)?;
        }
        tree.leaf.push((flags, key, value));
        tree.leaf_bytes += bytes;
        Ok(())
    }

    fn flush_leaf(&mut self, tree: &mut Tree) -> io::Result<()> {
        let leaf = std::mem::take(&mut tree.leaf);
        tree.leaf_bytes = 0;
        let first = leaf.first().map(|(_, key, _)| key.clone()).unwrap_or_default();
        let mut elements = Vec::new();
        let mut data = Vec::new();
        let header_bytes = leaf.len() * ELEMENT_BYTES;
        for (at, (flags, key, value)) in leaf.iter().enumerate() {
            let position = header_bytes - at * ELEMENT_BYTES + data.len();
            for number in [*flags, small(position)?, small(key.len())?, small(value.len())?] {
                elements.extend_from_slice(&number.to_le_bytes());
            }
            data.extend_from_slice(key);
            data.extend_from_slice(value);
        }
        let page = self.page(LEAF, leaf.len(), &[elements, data].concat())?;
        tree.above.push((first, page));
        Ok(())
    }

    /// Writes what is left of a tree and the levels above; the number of its root.
    fn finish_tree(&mut self, mut tree: Tree) -> io::Result<u64> {
        if !tree.leaf.is_empty() || tree.above.is_empty() {
            self.flush_leaf(&mut tree)?;
        }
        let mut level = tree.above;
        while level.len() > 1 {
            level = self.branches(level)?;
        }
        level
            .first()
            .map(|(_, page)| *page)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn branches(&mut self, below: Vec<(Vec<u8>, u64)>) -> io::Result<Vec<(Vec<u8>, u64)>> {
        let mut level = Vec::new();
        let mut rest = &below[..];
        while !rest.is_empty() {
            let mut bytes = PAGE_HEADER_BYTES;
            let fits = rest.iter().take(MAX_ELEMENTS).take_while(|(key, _)| {
                bytes += ELEMENT_BYTES + key.len();
                bytes <= PAGE_BYTES
            });
            // A branch has two pages below it, or the level above would be no shorter.
            let count = fits.count().max(2).min(rest.len());
            let (these, others) = rest.split_at(count);
            level.push((these[0].0.clone(), self.branch(these)?));
            rest = others;
        }
        Ok(level)
    }

    fn branch(&mut self, below: &[(Vec<u8>, u64)]) -> io::Result<u64> {
        let mut elements = Vec::new();
        let mut data = Vec::new();
        for (at, (key, page)) in below.iter().enumerate() {
            let position = (below.len() - at) * ELEMENT_BYTES + data.len();
            for number in [small(position)?, small(key.len())?] {
                elements.extend_from_slice(&number.to_le_bytes());
            }
            elements.extend_from_slice(&page.to_le_bytes());
            data.extend_from_slice(key);
        }
        self.page(BRANCH, below.len(), &[elements, data].concat())
    }

    /// Writes a page of as many blocks as it needs; its number.
    fn page(&mut self, flags: u16, count: usize, body: &[u8]) -> io::Result<u64> {
        let id = self.next;
        let blocks = (PAGE_HEADER_BYTES + body.len()).div_ceil(PAGE_BYTES).max(1);
        self.write_page(id, (flags, count, blocks), body)?;
        self.next += blocks as u64;
        Ok(id)
    }

    fn write_page(
        &mut self,
        id: u64,
        (flags, count, blocks): (u16, usize, usize),
        body: &[u8],
    ) -> io::Result<()> {
        let count = u16::try_from(count).map_err(|_| io::ErrorKind::InvalidData)?;
        let mut bytes = Vec::with_capacity(blocks * PAGE_BYTES);
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&small(blocks - 1)?.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(blocks * PAGE_BYTES, 0);
        self.pages.write_at(id * PAGE_BYTES as u64, &bytes)
    }

    /// Ends a tree as the bucket of this name; names come in their order.
    pub(super) fn bucket(&mut self, name: &str, tree: Tree) -> io::Result<()> {
        let root = self.finish_tree(tree)?;
        let value = [root.to_le_bytes(), [0; 8]].concat();
        self.buckets.push((name.into(), value));
        Ok(())
    }

    /// Writes everything else; where the pages went, and their length.
    pub(super) fn finish(mut self) -> io::Result<(P, u64)> {
        let mut tree = Tree::default();
        for (name, value) in std::mem::take(&mut self.buckets) {
            self.put_flagged(&mut tree, BUCKET, name, value)?;
        }
        let root = self.finish_tree(tree)?;
        self.write_page(FREELIST_PAGE, (FREELIST, 0, 1), &[])?;
        for transaction in [0, 1] {
            let meta = Meta {
                page_bytes: small(PAGE_BYTES)?,
                root,
                freelist: FREELIST_PAGE,
                pages: self.next,
                transaction,
            };
            self.write_page(transaction, (META, 0, 1), &meta.encode())?;
        }
        Ok((self.pages, self.next * PAGE_BYTES as u64))
    }
}

fn small(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl Meta {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [super::format::MAGIC, super::format::VERSION, self.page_bytes, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.root, 0, self.freelist, self.pages, self.transaction] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = Checksum::of(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }
}

/// The SHA-256 of what `read` gives, which etcd appends to a snapshot.
pub(super) fn digest(
    length: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    while at < length {
        let wanted = usize::try_from(length - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let read = read(at, &mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        digest.update(&buffer[..read]);
        at += read as u64;
    }
    Ok(digest.finalize().into())
}
