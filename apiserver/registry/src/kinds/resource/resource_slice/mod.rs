//! ResourceSlice: devices of a pool, as its driver publishes them.

mod columns;

use crate::engine::kind::Kind;
use crate::engine::selectable::Selectable;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "resourceslices")
    .traits(Traits::COUNTED.returned())
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["spec.nodeName", "spec.driver", "spec.pool.name"]));
