//! ServiceAccount: an identity for pods.

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("", "serviceaccounts")
    .traits(Traits::PLAIN.returned())
    .columns(crate::shared::columns::format::name_and_age);
