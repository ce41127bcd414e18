//! RuntimeClass: a way to run containers, by the name of its handler.

mod columns;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("node.k8s.io", "runtimeclasses")
    .traits(Traits::PLAIN.any_finalizers().put_creates().revision_wanted())
    .rules(
        ValidationRules::create(validation::validate_runtime_class)
            .update(validation::validate_runtime_class_update),
    )
    .columns(columns::cells);
