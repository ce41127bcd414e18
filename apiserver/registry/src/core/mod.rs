//! The kinds of the core group that have rules of their own.

pub mod claim;
pub mod config_map;
pub mod endpoints;
pub mod event;
mod namespace;
pub mod node;
pub mod pod;
pub mod replication_controller;
pub mod secret;
pub mod service;
pub mod volume;

use crate::rules::Rules;
use crate::strategy::Strategy;
use crate::table_strategy::{Kind, Traits};
use std::sync::Arc;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "endpoints",
        Traits::PLAIN.put_creates(),
        Rules::on(endpoints::validation::validate),
    ),
    Kind::of("limitranges", Traits::PLAIN.put_creates(), Rules::NONE),
    Kind::of(
        "persistentvolumeclaims",
        Traits::PLAIN.returned(),
        Rules::on(claim::validation::validate).changed(claim::change::validate_update),
    ),
    Kind::of(
        "persistentvolumes",
        Traits::PLAIN.returned(),
        Rules::on(volume::validation::validate).changed(volume::validation::validate_update),
    ),
    Kind::of("podtemplates", Traits::COUNTED.returned(), Rules::NONE),
    Kind::of(
        "replicationcontrollers",
        Traits::COUNTED.orphaning(),
        Rules::on(replication_controller::validation::validate)
            .status(crate::apps::status::validate_controller),
    ),
    Kind::of("resourcequotas", Traits::PLAIN.returned(), Rules::NONE),
    Kind::of("serviceaccounts", Traits::PLAIN.returned(), Rules::NONE),
];

/// The strategy of a kind of this group that has one of its own.
pub(crate) fn strategy(group: &str, plural: &str) -> Option<Arc<dyn Strategy>> {
    Some(match (group, plural) {
        ("", "configmaps") => Arc::new(config_map::ConfigMapStrategy),
        ("", "namespaces") => Arc::new(namespace::NamespaceStrategy),
        ("", "nodes") => Arc::new(node::NodeStrategy),
        ("", "pods") => Arc::new(pod::PodStrategy),
        ("", "secrets") => Arc::new(secret::SecretStrategy),
        ("", "services") => Arc::new(service::ServiceStrategy),
        ("" | "events.k8s.io", "events") => Arc::new(event::EventStrategy {
            core: group.is_empty(),
        }),
        _ => return None,
    })
}
