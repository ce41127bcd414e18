//! Digests as text.

/// Writes bytes as hexadecimal digits, two for each.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
