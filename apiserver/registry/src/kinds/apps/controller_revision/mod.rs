//! ControllerRevision: what a DaemonSet or StatefulSet once was.

mod columns;
pub mod validation;

use crate::engine::kind::Kind;
use crate::engine::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apps", "controllerrevisions")
    .rules(ValidationRules::create(validation::validate).update(validation::validate_update))
    .columns(columns::cells);
