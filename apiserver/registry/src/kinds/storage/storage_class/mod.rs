//! StorageClass: the way in which volumes for claims are made.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("storage.k8s.io", "storageclasses")
    .traits(Traits::PLAIN.returned())
    .rules(ValidationRules::create(validation::validate_class).update(validation::validate_class_update))
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);
