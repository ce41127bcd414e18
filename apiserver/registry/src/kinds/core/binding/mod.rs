//! Binding: a pod and its node, as schedulers post them. Not stored.

use crate::engine::kind::Kind;

pub(crate) static KIND: Kind = Kind::of("", "bindings");
