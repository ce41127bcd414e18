//! CSINode: the drivers of a node.

mod columns;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "csinodes")
    .traits(Traits::PLAIN.returned().revision_wanted())
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .columns(columns::cells);
