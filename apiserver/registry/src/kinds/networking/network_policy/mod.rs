//! NetworkPolicy: traffic that pods may receive and send.

mod columns;
mod defaults;
mod not_enforced;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "networkpolicies")
    .traits(Traits::COUNTED)
    .not_enforced("traffic is not filtered")
    .refused(not_enforced::refusal)
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .columns(columns::cells);
