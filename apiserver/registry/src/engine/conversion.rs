//! Conversion between the form in which objects are stored and that of a served version.

use machinery_schema::{Schema, Tree, TypeId};
use std::sync::Arc;

/// Brings objects from one version's form into another's.
pub trait Conversion: Send + Sync + std::fmt::Debug {
    /// Converts the stored form to this row's.
    fn to_served(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree;
    /// Converts this row's form to the stored one.
    fn to_stored(&self, object: &Tree, schema: &Arc<Schema>, ty: TypeId) -> Tree;
}
