//! StorageClass: the way in which volumes for claims are made.

mod columns;
mod defaults;
mod not_enforced;
mod topologies;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "storageclasses")
    .traits(Traits::PLAIN.returned())
    .rules(ValidationRules::create(validation::validate_class).update(validation::validate_class_update))
    .fields_not_enforced(not_enforced::fields)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
