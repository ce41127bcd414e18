//! The generated table of built-in kinds, and what belongs to k8s-openapi's types.
//!
//! `facts/` says what upstream's code and server know about every GA kind; [`compile`] turns it into the
//! blob `src/table.bin`, which is checked in and built into the binary. [`table`] reads it once per process:
//! the types as a [`Schema`] the engines run on, and one [`KindInfo`] per resource with everything discovery,
//! routes and storage need to know. [`schema_for`] finds the type of any kind, options and lists included.
//!
//! There is no second list of kinds anywhere. Nothing here waits, reads a clock or opens a file.

pub mod compile;
pub mod openapi;
pub mod pod;
#[cfg(test)]
mod samples;
mod stored;
mod table;
#[cfg(test)]
mod tests;

pub use stored::{StoredError, read_stored};
pub use table::{FeatureGate, KindInfo, ServedGroup, Subresource, Table};

use machinery_schema::{Schema, TypeId};
use std::sync::{Arc, OnceLock};

/// The table of this program; read on first use, then shared.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::read(include_bytes!("table.bin"))
            .expect("the checked-in blob was written by this version's compiler")
    })
}

/// The built-in schema.
pub fn schema() -> &'static Arc<Schema> {
    table().schema()
}

/// The schema and type of a kind; of options kinds (`DeleteOptions` …) in any group version.
pub fn schema_for(group: &str, version: &str, kind: &str) -> Option<(&'static Arc<Schema>, TypeId)> {
    let ty = table().type_of(group, version, kind)?;
    Some((table().schema(), ty))
}
