//! DeviceClass: devices that claims request by one name.

use crate::kind::{Kind, Traits};

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "deviceclasses")
    .traits(Traits::COUNTED.returned())
    .not_enforced("devices are not allocated")
    .columns(crate::columns::format::name_and_age);
