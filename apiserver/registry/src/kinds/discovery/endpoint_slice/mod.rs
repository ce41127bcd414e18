//! EndpointSlice: some of the addresses behind a service.

mod columns;
mod defaults;
mod topology;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::metadata;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::Tree;

pub(crate) static KIND: Kind = Kind::of("discovery.k8s.io", "endpointslices")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .prepare_for_create(|_, object| topology::drop(object))
    .prepare_for_update(|_, _, object, old| topology::drop_of_changed(object, old))
    .spec_changed(spec_changed)
    .default_lines(&[defaults::LINES])
    .columns(columns::cells);

/// The service that a slice belongs to is a label.
fn spec_changed(object: &Tree, old: &Tree) -> bool {
    object.at(&["metadata", "labels"]) != old.at(&["metadata", "labels"])
        || metadata::spec_differs(object, old)
}
