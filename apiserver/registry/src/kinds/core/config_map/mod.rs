//! ConfigMap: a namespaced map of text and bytes; immutable when it says so. Nothing else.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "configmaps")
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .columns(columns::cells);
