//! DeviceTaintRule: a taint of all devices that it selects.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "devicetaintrules")
    .traits(Traits::COUNTED.revision_wanted())
    .rules(ValidationRules::create(validation::validate).status(validation::validate_status))
    .not_enforced("devices are not allocated")
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .columns(columns::cells);
