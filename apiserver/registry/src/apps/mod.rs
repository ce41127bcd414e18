//! The kinds of the apps group that have rules of their own.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub(crate) mod status;
mod workload;

use crate::rules::Rules;
use crate::table_strategy::{Kind, NameRule, Traits};

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "controllerrevisions",
        Traits::PLAIN,
        Rules::on(controller_revision::validation::validate)
            .changed(controller_revision::validation::validate_update),
    ),
    Kind::of(
        "daemonsets",
        Traits::COUNTED,
        Rules::on(daemon_set::validation::validate)
            .changed(daemon_set::validation::validate_update)
            .status(status::validate_daemon_set),
    ),
    Kind::of(
        "deployments",
        Traits::COUNTED,
        Rules::on(deployment::validation::validate)
            .changed(deployment::validation::validate_update)
            .status(status::validate_deployment),
    ),
    Kind::of(
        "replicasets",
        Traits::COUNTED,
        Rules::on(replica_set::validation::validate)
            .changed(replica_set::validation::validate_update)
            .status(status::validate_replica_set),
    ),
    Kind::of(
        "statefulsets",
        Traits::COUNTED.named(NameRule::Label),
        Rules::on(stateful_set::validation::validate)
            .changed(stateful_set::validation::validate_update)
            .status(status::validate_stateful_set),
    ),
];
