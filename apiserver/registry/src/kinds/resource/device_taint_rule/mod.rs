//! DeviceTaintRule: a taint of all devices that it selects.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::metadata::keep_in_status;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use crate::kinds::resource::defaults::{time_of_effect, time_of_rule};

pub(crate) static KIND: Kind = Kind::of("resource.k8s.io", "devicetaintrules")
    .traits(Traits::COUNTED.revision_wanted())
    .rules(ValidationRules::create(validation::validate).status(validation::validate_status))
    .prepare_for_create(time_of_rule)
    .prepare_for_update(|ctx, part, object, old| {
        keep_in_status(ctx, part, object, old);
        time_of_effect(object, old);
        time_of_rule(ctx, object);
    })
    .columns(columns::cells);
