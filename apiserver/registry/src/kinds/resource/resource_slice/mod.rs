//! ResourceSlice: devices of a pool, as its driver publishes them.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind =
    Kind::of("resource.k8s.io", "resourceslices").traits(Traits::COUNTED.returned());
