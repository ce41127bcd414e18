//! Checksums of upstream's checkpoints: FNV-1a over a text as Go's `spew` prints the data (`dump.ForHash`). Pure.

/// FNV-1a of 32 bits, Go's `fnv.New32a`.
pub(super) fn of_print(text: &str) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let bytes = text.bytes();
    bytes.fold(OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

/// Upstream's `checksum.New` of a text.
pub(super) fn of_text(text: &str) -> u32 {
    of_print(&format!("(string){text}"))
}
