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

use crate::strategy::Strategy;
use crate::table_strategy::{Kind, Traits};
use crate::validation_rules::ValidationRules;
use std::sync::Arc;

/// The kinds of this group that the table serves.
pub(crate) const KINDS: &[Kind] = &[
    Kind::of(
        "endpoints",
        Traits::PLAIN.put_creates(),
        ValidationRules::create(endpoints::validation::validate),
    ),
    Kind::of("limitranges", Traits::PLAIN.put_creates(), ValidationRules::NONE),
    Kind::of(
        "persistentvolumeclaims",
        Traits::PLAIN.returned(),
        ValidationRules::create(claim::validation::validate).update(claim::change::validate_update),
    ),
    Kind::of(
        "persistentvolumes",
        Traits::PLAIN.returned(),
        ValidationRules::create(volume::validation::validate).update(volume::validation::validate_update),
    ),
    Kind::of("podtemplates", Traits::COUNTED.returned(), ValidationRules::NONE),
    Kind::of(
        "replicationcontrollers",
        Traits::COUNTED.orphaning(),
        ValidationRules::create(replication_controller::validation::validate)
            .status(crate::apps::status::validate_controller),
    ),
    Kind::of("resourcequotas", Traits::PLAIN.returned(), ValidationRules::NONE),
    Kind::of("serviceaccounts", Traits::PLAIN.returned(), ValidationRules::NONE),
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
