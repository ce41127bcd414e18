//! Version of this program.

/// The Kubernetes release whose behaviour this has, as server and nodes say it, with our own behind it.
pub const GIT_VERSION: &str = concat!("v1.37.1+knarr.", env!("CARGO_PKG_VERSION"));

/// The Kubernetes release alone.
pub const KUBERNETES: &str = "v1.37.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_both_forms_name_same_release() {
        assert!(
            GIT_VERSION.starts_with(&format!("{KUBERNETES}+knarr.")),
            "{GIT_VERSION}"
        );
    }
}
