//! VolumeAttributesClass: parameters of volumes that may change while they are used.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "volumeattributesclasses")
    .traits(Traits::PLAIN.returned())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .not_enforced("volumes are not changed")
    .columns(columns::cells);
