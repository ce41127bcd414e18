//! Built-in kinds in storage, for programs that read what a server has stored.

use super::built_in_rows;
use crate::engine::row::ResourceRow;
use crate::engine::rows::Rows;
use crate::engine::values::ObjectValues;
use apiserver_storage::RecordCodec;
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The codec of a server that serves the built-in kinds alone, for programs that read what a server has stored. Objects
/// of other kinds are read by the type their value names.
pub fn built_in_values() -> Arc<dyn RecordCodec> {
    let rows = built_in_rows().into_iter().map(Arc::new).collect();
    let rows = Rows::rebuilt(rows, BTreeMap::new(), 1);
    Arc::new(ObjectValues::new(Arc::new(ArcSwap::from_pointee(rows))))
}

/// Storage prefixes of the built-in kinds, with group and plural of each.
pub fn stored_resources() -> Vec<(String, String, String)> {
    let row = |row: ResourceRow| {
        let group = row.stored.gvk.group.to_string();
        (row.stored.prefix.clone(), group, row.plural.to_string())
    };
    built_in_rows().into_iter().map(row).collect()
}
