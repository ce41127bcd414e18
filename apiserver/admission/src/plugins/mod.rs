//! The built-in plugins, in upstream's running order. A new one is a file here and a row in [`all`].

mod configured;
mod default_classes;
mod default_toleration_seconds;
mod deny_service_external_ips;
pub mod event_rate_limit;
mod limit_ranger;
mod namespace_lifecycle;
mod node_declared_feature_validator;
mod node_restriction;
mod objects;
mod persistent_volume_claim_resize;
mod pod_resize_validator;
pub mod pod_security;
mod pod_topology_labels;
mod priority;
pub mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod tolerations;

use crate::Plugin;
use crate::permissions::Permissions;
use crate::policies::{MutatingPolicies, Policies, ValidatingPolicies};
use crate::webhooks::{MutatingWebhooks, ValidatingWebhooks, Webhooks};
use default_classes::DefaultClass;
use event_rate_limit::EventRateLimit;
use machinery_meta::reader::ObjectReader;
use pod_security::PodSecurity;
use resource_quota::ResourceQuota;
use std::sync::Arc;

/// A source of random characters for generated names; the server gives its runtime's.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The names of all, as `--disable-admission-plugins` and `--enable-admission-plugins` take them.
pub const NAMES: [&str; 23] = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "EventRateLimit",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "NodeDeclaredFeatureValidator",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// Plugins in running order: those that upstream enables by default, as far as they are built,
/// `DenyServiceExternalIPs`, and `EventRateLimit` if it is configured.
pub fn all(
    reader: &Arc<dyn ObjectReader>,
    permissions: &Arc<dyn Permissions>,
    random: Random,
    event_rate_limit: Option<EventRateLimit>,
    pod_security: PodSecurity,
    quota: ResourceQuota,
    (webhooks, policies): (&Arc<Webhooks>, &Arc<Policies>),
) -> Vec<Box<dyn Plugin>> {
    let mut all: Vec<Box<dyn Plugin>> = vec![
        Box::new(namespace_lifecycle::NamespaceLifecycle::new(reader)),
        Box::new(limit_ranger::LimitRanger::new(reader)),
        Box::new(service_account::ServiceAccount::new(reader, random)),
        Box::new(node_restriction::NodeRestriction::new(reader, permissions)),
        Box::new(taint_nodes_by_condition::TaintNodesByCondition),
        Box::new(pod_security),
        Box::new(priority::Priority::new(reader)),
        Box::new(default_toleration_seconds::DefaultTolerationSeconds::new()),
    ];
    all.extend(event_rate_limit.map(|own| -> Box<dyn Plugin> { Box::new(own) }));
    let rest: [Box<dyn Plugin>; 14] = [
        Box::new(DefaultClass::storage(reader)),
        Box::new(storage_object_in_use_protection::StorageObjectInUseProtection),
        Box::new(persistent_volume_claim_resize::PersistentVolumeClaimResize::new(
            reader,
        )),
        Box::new(runtime_class::RuntimeClass::new(reader)),
        Box::new(DefaultClass::ingress(reader)),
        Box::new(deny_service_external_ips::DenyServiceExternalIps),
        Box::new(pod_topology_labels::PodTopologyLabels::new(reader)),
        Box::new(node_declared_feature_validator::NodeDeclaredFeatureValidator::new(reader)),
        Box::new(pod_resize_validator::PodResizeValidator::new(reader)),
        Box::new(MutatingPolicies::new(policies)),
        Box::new(MutatingWebhooks::new(webhooks)),
        Box::new(ValidatingPolicies::new(policies)),
        Box::new(ValidatingWebhooks::new(webhooks)),
        // Last: what any other refuses uses nothing.
        Box::new(quota),
    ];
    all.extend(rest);
    all
}

#[cfg(test)]
mod tests;
