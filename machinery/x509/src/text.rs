//! Untrusted texts, as they are shown.

/// Characters of an untrusted text that are shown.
pub(crate) const MAX_SHOWN: usize = 128;

/// Returns the beginning of an untrusted text.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
