//! ServiceAccount: an identity for pods.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("", "serviceaccounts")
    .traits(Traits::PLAIN.returned())
    .columns(crate::columns::format::name_and_age);
