//! ServiceAccount: an identity for pods.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("", "serviceaccounts").traits(Traits::PLAIN.returned());
