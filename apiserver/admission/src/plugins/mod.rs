//! The built-in plugins, in upstream's running order. A new one is a file here and a row in [`all`].

mod always;
mod always_pull_images;
pub(crate) mod certificates;
mod configured;
mod default_classes;
mod default_toleration_seconds;
mod deny_service_external_ips;
pub mod event_rate_limit;
mod extended_resource_toleration;
pub mod image_policy;
mod limit_pod_hard_anti_affinity_topology;
mod limit_ranger;
mod namespace_auto_provision;
mod namespace_exists;
mod namespace_lifecycle;
mod node_declared_feature_validator;
mod node_restriction;
mod objects;
mod owner_references_permission_enforcement;
mod persistent_volume_claim_resize;
mod pod_node_selector;
mod pod_resize_validator;
pub mod pod_security;
mod pod_toleration_restriction;
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
use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
use default_classes::DefaultClass;
use event_rate_limit::EventRateLimit;
use image_policy::ImagePolicyWebhook;
use machinery_meta::reader::ObjectReader;
use namespace_auto_provision::NamespaceAutoProvision;
pub use namespace_auto_provision::NamespaceProvisioner;
use pod_node_selector::PodNodeSelector;
pub use pod_node_selector::PodNodeSelectorConfiguration;
use pod_security::PodSecurity;
use pod_toleration_restriction::PodTolerationRestriction;
pub use pod_toleration_restriction::PodTolerationRestrictionConfiguration;
use resource_quota::ResourceQuota;
use std::sync::Arc;

/// A source of random characters for generated names; the server gives its runtime's.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The names of all, as `--disable-admission-plugins` and `--enable-admission-plugins` take them, in running order.
pub const NAMES: [&str; 38] = [
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceLifecycle",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
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
    "AlwaysDeny",
];

/// Those that run only where they are enabled: upstream's, but for NodeRestriction and DenyServiceExternalIPs (decision 0044).
pub const OFF_BY_DEFAULT: [&str; 12] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// Plugins that are configured, and parts of the server that plugins use.
#[derive(Debug)]
pub struct Parts {
    /// Absent where the plugin is not enabled: without a configuration there is none.
    pub event_rate_limit: Option<EventRateLimit>,
    /// Absent likewise.
    pub image_policy: Option<ImagePolicyWebhook>,
    pub pod_security: PodSecurity,
    pub quota: ResourceQuota,
    pub node_selectors: PodNodeSelectorConfiguration,
    pub tolerations: PodTolerationRestrictionConfiguration,
    pub provisioner: Arc<dyn NamespaceProvisioner>,
    pub webhooks: Arc<Webhooks>,
    pub policies: Arc<Policies>,
}

/// Plugins in running order, those included that are off by default, but for `EventRateLimit` and `ImagePolicyWebhook` where they
/// are not configured.
pub fn all(
    reader: &Arc<dyn ObjectReader>,
    permissions: &Arc<dyn Permissions>,
    random: Random,
    parts: Parts,
) -> Vec<Box<dyn Plugin>> {
    let mut all: Vec<Box<dyn Plugin>> = vec![
        Box::new(always::AlwaysAdmit),
        Box::new(NamespaceAutoProvision::new(reader, parts.provisioner)),
        Box::new(namespace_lifecycle::NamespaceLifecycle::new(reader)),
        Box::new(namespace_exists::NamespaceExists::new(reader)),
        Box::new(limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology),
        Box::new(limit_ranger::LimitRanger::new(reader)),
        Box::new(service_account::ServiceAccount::new(reader, random)),
        Box::new(node_restriction::NodeRestriction::new(reader, permissions)),
        Box::new(taint_nodes_by_condition::TaintNodesByCondition),
        Box::new(always_pull_images::AlwaysPullImages),
    ];
    let images = parts.image_policy;
    all.extend(images.map(|own| -> Box<dyn Plugin> { Box::new(own) }));
    let of_pods: [Box<dyn Plugin>; 5] = [
        Box::new(parts.pod_security),
        Box::new(PodNodeSelector::new(reader, parts.node_selectors)),
        Box::new(priority::Priority::new(reader)),
        Box::new(default_toleration_seconds::DefaultTolerationSeconds::new()),
        Box::new(PodTolerationRestriction::new(reader, parts.tolerations)),
    ];
    all.extend(of_pods);
    let limit = parts.event_rate_limit;
    all.extend(limit.map(|own| -> Box<dyn Plugin> { Box::new(own) }));
    let rest: [Box<dyn Plugin>; 21] = [
        Box::new(extended_resource_toleration::ExtendedResourceToleration),
        Box::new(DefaultClass::storage(reader)),
        Box::new(storage_object_in_use_protection::StorageObjectInUseProtection),
        Box::new(owner_references_permission_enforcement::OwnerReferencesPermissionEnforcement),
        Box::new(persistent_volume_claim_resize::PersistentVolumeClaimResize::new(
            reader,
        )),
        Box::new(runtime_class::RuntimeClass::new(reader)),
        Box::new(CertificateApproval(Arc::clone(permissions))),
        Box::new(CertificateSigning(Arc::clone(permissions))),
        Box::new(ClusterTrustBundleAttest(Arc::clone(permissions))),
        Box::new(CertificateSubjectRestriction),
        Box::new(DefaultClass::ingress(reader)),
        Box::new(deny_service_external_ips::DenyServiceExternalIps),
        Box::new(pod_topology_labels::PodTopologyLabels::new(reader)),
        Box::new(node_declared_feature_validator::NodeDeclaredFeatureValidator::new(reader)),
        Box::new(pod_resize_validator::PodResizeValidator::new(reader)),
        Box::new(MutatingPolicies::new(&parts.policies)),
        Box::new(MutatingWebhooks::new(&parts.webhooks)),
        Box::new(ValidatingPolicies::new(&parts.policies)),
        Box::new(ValidatingWebhooks::new(&parts.webhooks)),
        // Last of those that admit: what any other refuses uses nothing.
        Box::new(parts.quota),
        Box::new(always::AlwaysDeny),
    ];
    all.extend(rest);
    all
}

#[cfg(test)]
mod tests;
