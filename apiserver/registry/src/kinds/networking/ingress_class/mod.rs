//! IngressClass: the controller of ingresses.

mod columns;
mod defaults;
mod not_enforced;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "ingressclasses")
    .traits(Traits::COUNTED)
    .not_enforced("no gateway acts on it")
    .fields_not_enforced(not_enforced::fields)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
