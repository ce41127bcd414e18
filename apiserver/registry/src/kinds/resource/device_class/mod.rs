//! DeviceClass: devices that claims request by one name.

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "deviceclasses")
    .traits(Traits::COUNTED.returned())
    .not_enforced("devices are not allocated")
    .columns(crate::shared::columns::format::name_and_age);
