//! CSIDriver: how volumes of a driver are handled.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind =
    Kind::of("storage.k8s.io", "csidrivers").traits(Traits::PLAIN.returned().revision_wanted());
