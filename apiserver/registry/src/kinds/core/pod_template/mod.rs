//! PodTemplate: a template that nothing acts on by itself.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("", "podtemplates").traits(Traits::COUNTED.returned());
