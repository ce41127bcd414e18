//! ComponentStatus: the health of a part of the control plane. Not stored.

use crate::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("", "componentstatuses");
