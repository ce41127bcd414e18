//! HorizontalPodAutoscaler: a number of pods that follows what they use; stored as `autoscaling/v2`.

mod annotations;
mod columns;
pub(crate) mod conversion;
mod defaults;
mod metric_sources;
mod status;
mod validation;

use crate::engine::kind::{Kind, StoredAs};
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;
use std::sync::Arc;

pub(crate) static KIND: Kind = Kind::of("autoscaling", "horizontalpodautoscalers")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).status(status::validate))
    .default_lines(&[defaults::LINES])
    .defaults(defaults::set)
    .columns(columns::cells)
    .stored_as(StoredAs {
        version: "v1",
        stored: ("autoscaling", "v2"),
        conversion: || Arc::new(conversion::HpaConversion),
    });
