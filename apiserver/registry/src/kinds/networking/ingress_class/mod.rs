//! IngressClass: the controller of ingresses.

mod columns;
mod defaults;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "ingressclasses")
    .traits(Traits::COUNTED)
    .not_enforced("no gateway acts on it")
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
