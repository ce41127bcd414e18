//! Texts of strangers, as they are shown.

/// Characters of a stranger's text that are shown.
pub(crate) const MAX_SHOWN: usize = 128;

/// Returns the beginning of a stranger's text.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}
