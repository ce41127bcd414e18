//! The report of a recovery.

use machinery_meta::Revision;

/// Result of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The last revision that is there.
    pub revision: Revision,
    /// The oldest that can be read.
    pub compacted: Revision,
    /// Number of objects.
    pub objects: usize,
    /// The checkpoint that was read.
    pub checkpoint: Option<Revision>,
    /// Changes read from the log behind it.
    pub replayed: u64,
    /// Bytes of a batch that a power loss left incomplete; no caller was answered that it is stored.
    pub torn_bytes: u64,
    /// Problems that recovery worked around, one line each.
    pub problems: Vec<String>,
}
