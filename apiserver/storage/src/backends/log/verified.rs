//! Steps of reading a file again, past the page cache.

use machinery_runtime::DiskFile;

/// The end of one step over a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) bytes: u64,
    /// Offset of the next step; `None` after the last.
    pub(super) next: Option<u64>,
}

/// Reads a part of a file as the device has it, and leaves nothing of it in the page cache.
///
/// The cache may have the bytes as they were written, whatever has become of them; and everything that is stored, once
/// read, would take the place of what others need there.
pub(super) fn past_cache<T>(
    file: &dyn DiskFile,
    (offset, length): (u64, u64),
    read: impl FnOnce() -> T,
) -> T {
    file.forget_cached(offset, length);
    let found = read();
    file.forget_cached(offset, length);
    found
}
