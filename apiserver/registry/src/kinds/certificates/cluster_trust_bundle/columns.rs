//! Columns of ClusterTrustBundles in a Table.

use crate::shared::columns::Cell;
use crate::shared::columns::format::{NONE, name, or};
use jiff::Timestamp;
use machinery_schema::Ref;

/// Cells in the order of the headers.
pub(super) fn cells(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        or(object.str_at(&["spec", "signerName"]), NONE).into(),
    ]
}
