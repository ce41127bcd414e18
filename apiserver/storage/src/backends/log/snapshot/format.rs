//! Format of bbolt's files, as far as etcd's snapshots need it.

pub(super) const PAGE_BYTES: usize = 4096;
pub(super) const PAGE_HEADER_BYTES: usize = 16;
/// Length of an element, of leaves and branches alike.
pub(super) const ELEMENT_BYTES: usize = 16;
pub(super) const BRANCH: u16 = 1;
pub(super) const LEAF: u16 = 2;
pub(super) const META: u16 = 4;
pub(super) const FREELIST: u16 = 16;
/// The flag of a leaf's element whose value is a bucket.
pub(super) const BUCKET: u32 = 1;
pub(super) const MAGIC: u32 = 0xed0c_daed;
pub(super) const VERSION: u32 = 2;
/// A meta before its checksum.
pub(super) const META_BYTES: usize = 56;
/// Length of the SHA-256 that etcd appends.
pub(super) const DIGEST_BYTES: u64 = 32;
/// The length of a file with a digest has this remainder of the digest's length.
pub(super) const DIGEST_UNIT: u64 = 512;

/// The root of the tree of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_bytes: u32,
    pub(super) root: u64,
    pub(super) freelist: u64,
    pub(super) pages: u64,
    pub(super) transaction: u64,
}

/// FNV-1a.
pub(super) struct Checksum;

impl Checksum {
    pub(super) fn of(bytes: &[u8]) -> u64 {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        bytes
            .iter()
            .fold(OFFSET, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME))
    }
}
