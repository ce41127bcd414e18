//! IngressClass: the controller of ingresses.

mod not_enforced;

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("networking.k8s.io", "ingressclasses")
    .traits(Traits::COUNTED)
    .not_enforced("no gateway acts on it")
    .fields_not_enforced(not_enforced::fields);
