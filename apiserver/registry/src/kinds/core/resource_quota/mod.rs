//! ResourceQuota: bounds for all of a namespace together.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("", "resourcequotas").traits(Traits::PLAIN.returned());
