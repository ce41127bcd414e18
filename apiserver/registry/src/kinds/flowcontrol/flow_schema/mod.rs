//! FlowSchema: requests that share a priority level, and how they are distinguished in it.

mod columns;
mod defaults;
mod validation;

use crate::engine::kind::Kind;
use crate::engine::traits::Traits;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("flowcontrol.apiserver.k8s.io", "flowschemas")
    .traits(Traits::COUNTED)
    .rules(ValidationRules::create(validation::validate).status(super::status::validate_status))
    .prepare_for_update(super::status::keep)
    .defaults(defaults::set)
    .columns(columns::cells)
    .list_order(columns::precedence);
