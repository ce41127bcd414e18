//! LimitRange: bounds and defaults for what pods of a namespace request.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("", "limitranges").traits(Traits::PLAIN.put_creates());
