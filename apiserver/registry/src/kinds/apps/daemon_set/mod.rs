//! DaemonSet: a pod on every node that fits.

pub mod validation;

use crate::kind::{Kind, Traits};
use crate::validation_rules::ValidationRules;

pub(crate) static KIND: Kind = Kind::of("apps", "daemonsets").traits(Traits::COUNTED).rules(
    ValidationRules::create(validation::validate)
        .update(validation::validate_update)
        .status(crate::kinds::apps::status::validate_daemon_set),
);
