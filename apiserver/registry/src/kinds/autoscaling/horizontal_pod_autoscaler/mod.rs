//! HorizontalPodAutoscaler: a number of pods that follows what they use; stored as `autoscaling/v2`.

mod annotations;
pub(crate) mod conversion;
mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("autoscaling", "horizontalpodautoscalers")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate))
    .not_enforced("no controller acts on it");
