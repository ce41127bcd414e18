//! CSINode: the drivers of a node.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind =
    Kind::of("storage.k8s.io", "csinodes").traits(Traits::PLAIN.returned().revision_wanted());
