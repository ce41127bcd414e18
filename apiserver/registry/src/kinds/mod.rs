//! The built-in kinds: a folder each, and one line each in the list.
//!
//! A folder `<group>/<kind>/` has everything about its kind, under the same names everywhere: `mod.rs` with the constant `KIND`
//! and what the kind is, `validation.rs`, `defaults.rs`, `columns.rs`, `not_enforced.rs`, and a file for each further subject of its
//! own. Files that several kinds of a group share lie beside their folders. `rows.rs` makes the rows that are served from the list and
//! the generated table.

pub mod admissionregistration;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod events;
pub mod flowcontrol;
pub mod metrics;
pub mod networking;
pub mod node;
pub mod policy;
pub mod rbac;
pub mod resource;
mod rows;
pub mod scheduling;
pub mod storage;
pub mod storagemigration;
mod stored;
mod subresources;
#[cfg(test)]
mod tests;

pub use rows::built_in_rows;
pub use stored::{built_in_values, stored_resources};
pub use subresources::is_long_running;

use crate::engine::allocation::{Allocate, Allocators, BuiltIn};
use crate::engine::kind::Kind;

/// Every kind of the table, by group and name.
static ALL: [&Kind; 73] = [
    &admissionregistration::mutating_admission_policy::KIND,
    &admissionregistration::mutating_admission_policy_binding::KIND,
    &admissionregistration::mutating_webhook_configuration::KIND,
    &admissionregistration::validating_admission_policy::KIND,
    &admissionregistration::validating_admission_policy_binding::KIND,
    &admissionregistration::validating_webhook_configuration::KIND,
    &apiextensions::custom_resource_definition::KIND,
    &apiregistration::api_service::KIND,
    &apps::controller_revision::KIND,
    &apps::daemon_set::KIND,
    &apps::deployment::KIND,
    &apps::replica_set::KIND,
    &apps::stateful_set::KIND,
    &authentication::self_subject_review::KIND,
    &authentication::token_review::KIND,
    &authorization::local_subject_access_review::KIND,
    &authorization::self_subject_access_review::KIND,
    &authorization::self_subject_rules_review::KIND,
    &authorization::subject_access_review::KIND,
    &autoscaling::horizontal_pod_autoscaler::KIND,
    &batch::cron_job::KIND,
    &batch::job::KIND,
    &certificates::certificate_signing_request::KIND,
    &certificates::cluster_trust_bundle::KIND,
    &certificates::pod_certificate_request::KIND,
    &coordination::lease::KIND,
    &core::binding::KIND,
    &core::component_status::KIND,
    &core::config_map::KIND,
    &core::endpoints::KIND,
    &core::event::KIND,
    &core::limit_range::KIND,
    &core::namespace::KIND,
    &core::node::KIND,
    &core::persistent_volume::KIND,
    &core::persistent_volume_claim::KIND,
    &core::pod::KIND,
    &core::pod_template::KIND,
    &core::replication_controller::KIND,
    &core::resource_quota::KIND,
    &core::secret::KIND,
    &core::service::KIND,
    &core::service_account::KIND,
    &discovery::endpoint_slice::KIND,
    &events::event::KIND,
    &flowcontrol::flow_schema::KIND,
    &flowcontrol::priority_level_configuration::KIND,
    &metrics::node_metrics::KIND,
    &metrics::pod_metrics::KIND,
    &networking::ingress::KIND,
    &networking::ingress_class::KIND,
    &networking::ip_address::KIND,
    &networking::network_policy::KIND,
    &networking::service_cidr::KIND,
    &node::runtime_class::KIND,
    &policy::pod_disruption_budget::KIND,
    &rbac::cluster_role::KIND,
    &rbac::cluster_role_binding::KIND,
    &rbac::role::KIND,
    &rbac::role_binding::KIND,
    &resource::device_class::KIND,
    &resource::device_taint_rule::KIND,
    &resource::resource_claim::KIND,
    &resource::resource_claim_template::KIND,
    &resource::resource_slice::KIND,
    &scheduling::priority_class::KIND,
    &storage::csi_driver::KIND,
    &storage::csi_node::KIND,
    &storage::csi_storage_capacity::KIND,
    &storage::storage_class::KIND,
    &storage::volume_attachment::KIND,
    &storage::volume_attributes_class::KIND,
    &storagemigration::storage_version_migration::KIND,
];

/// A kind by its name, for the making of rows.
fn find(group: &str, plural: &str) -> Option<&'static Kind> {
    let mut all = ALL.iter().copied();
    all.find(|kind| kind.group == group && kind.plural == plural)
}

/// Kinds whose objects take something that others share, or give it back.
static ALLOCATE: [(&Kind, Allocate); 3] = [
    (&core::service::KIND, core::service::allocate),
    (
        &resource::resource_claim::KIND,
        resource::resource_claim::allocate,
    ),
    (
        &resource::resource_claim_template::KIND,
        resource::resource_claim_template::allocate,
    ),
];

/// All built-in kinds.
pub fn built_in() -> BuiltIn {
    BuiltIn {
        rows: built_in_rows(),
        allocators: Allocators::of(&ALLOCATE),
    }
}
