//! StorageVersionMigration: objects of a resource that are to be stored again.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storagemigration.k8s.io", "storageversionmigrations")
    .traits(Traits::PLAIN.revision_wanted())
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status),
    )
    .prepare_for_update(crate::engine::metadata::keep_in_status)
    .columns(columns::cells);
