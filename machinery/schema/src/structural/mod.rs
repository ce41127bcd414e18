//! Structural schemas of CRDs, compiled into the table's form.

/// What a custom kind's schema asks of a value beyond its type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Constraints {}
