//! Parts of an object that writes address.

/// The part of the object that a write addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectPart {
    /// Everything but what a subresource owns.
    Main,
    /// The `status` subresource.
    Status,
    /// Another subresource by name, which sees the whole object (`finalize`, `approval`, `ephemeralcontainers` …).
    Other(&'static str),
}
