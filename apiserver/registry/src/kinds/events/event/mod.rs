//! Event of events.k8s.io: stored as the core group has it, with stricter rules.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind =
    Kind::of("events.k8s.io", "events").traits(Traits::PLAIN.put_creates().garbage_unsupported());
