//! VolumeAttributesClass: parameters of volumes that may change while they are used.

mod columns;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "volumeattributesclasses")
    .traits(Traits::PLAIN.returned())
    .not_enforced("volumes are not changed")
    .columns(columns::cells);
