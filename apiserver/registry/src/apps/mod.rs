//! The kinds of the apps group that have rules of their own.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub(crate) mod status;
mod workload;

use crate::table_strategy::{Kind, NameRule, Traits};
use crate::validation_rules::ValidationRules;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "controllerrevisions",
        Traits::PLAIN,
        ValidationRules::create(controller_revision::validation::validate)
            .update(controller_revision::validation::validate_update),
    ),
    Kind::of(
        "daemonsets",
        Traits::COUNTED,
        ValidationRules::create(daemon_set::validation::validate)
            .update(daemon_set::validation::validate_update)
            .status(status::validate_daemon_set),
    ),
    Kind::of(
        "deployments",
        Traits::COUNTED,
        ValidationRules::create(deployment::validation::validate)
            .update(deployment::validation::validate_update)
            .status(status::validate_deployment),
    ),
    Kind::of(
        "replicasets",
        Traits::COUNTED,
        ValidationRules::create(replica_set::validation::validate)
            .update(replica_set::validation::validate_update)
            .status(status::validate_replica_set),
    ),
    Kind::of(
        "statefulsets",
        Traits::COUNTED.named(NameRule::Label),
        ValidationRules::create(stateful_set::validation::validate)
            .update(stateful_set::validation::validate_update)
            .status(status::validate_stateful_set),
    ),
];
