//! Names of domains.

/// Labels of visible characters, none of them empty, or nothing.
pub(crate) fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_graphic());
    name.is_empty() || name.split('.').all(is_label)
}
