//! ComponentStatus: the health of a part of the control plane. Not stored.

mod columns;

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("", "componentstatuses")
    .columns(columns::cells)
    .deprecated("v1 ComponentStatus is deprecated in v1.19+");
