//! CSINode: the drivers of a node.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "csinodes")
    .traits(Traits::PLAIN.returned().revision_wanted())
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .columns(columns::cells);
