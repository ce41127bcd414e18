//! Endpoints: the addresses behind a service, in the form before EndpointSlices.

mod columns;
mod defaults;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("", "endpoints")
    .traits(Traits::PLAIN.put_creates())
    .rules(ValidationRules::create(validation::validate))
    .default_lines(&[defaults::LINES])
    .columns(columns::cells)
    .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice");
