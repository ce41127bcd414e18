//! DeviceClass: devices that claims request by one name.

mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "deviceclasses")
    .traits(Traits::COUNTED.returned())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .columns(crate::shared::columns::format::name_and_age);
