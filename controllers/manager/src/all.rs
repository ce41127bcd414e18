//! Every controller, one row each. Names are upstream's `--controllers` names; each writes as the service account
//! `system:serviceaccount:kube-system:<service_account>`, whose role is upstream's `system:controller:<service_account>`.

use crate::descriptor::ControllerDescriptor;

/// The rows, in starting order.
pub fn rows() -> &'static [ControllerDescriptor] {
    &[
        crate::namespace::ROW,
        crate::service_account::ROW,
        crate::service_account_tokens::ROW,
        crate::service_account_tokens::CLEANER_ROW,
        crate::root_ca::ROW,
        crate::cluster_trust_bundles::ROW,
        crate::certificates::APPROVING_ROW,
        crate::certificates::SIGNING_ROW,
        crate::certificates::CLEANER_ROW,
        crate::certificates::POD_CLEANER_ROW,
        crate::bootstrap_tokens::SIGNER_ROW,
        crate::bootstrap_tokens::CLEANER_ROW,
        crate::cluster_role_aggregation::ROW,
        crate::replica_set::ROW,
        crate::replication_controller::ROW,
        crate::deployment::ROW,
        crate::daemon_set::ROW,
        crate::stateful_set::ROW,
        crate::job::ROW,
        crate::cron_job::ROW,
        crate::ttl_after_finished::ROW,
        crate::disruption::ROW,
        crate::horizontal_pod_autoscaler::ROW,
        crate::resource_quota::ROW,
        crate::endpoints::ROW,
        crate::endpoint_slice::ROW,
        crate::endpoint_slice_mirroring::ROW,
        crate::node_lifecycle::ROW,
        crate::node_lifecycle::EVICTION_ROW,
        crate::node_ipam::ROW,
        crate::node_ttl::ROW,
        crate::service_cidr::ROW,
        crate::pod_gc::ROW,
        crate::volume_binder::ROW,
        crate::attach_detach::ROW,
        crate::expand::ROW,
        crate::ephemeral_volume::ROW,
        crate::resource_claim::ROW,
        crate::device_taint_eviction::ROW,
        crate::local_path::ROW,
        crate::storage_protection::VOLUME_ROW,
        crate::storage_protection::CLAIM_ROW,
        crate::storage_protection::ATTRIBUTES_ROW,
        crate::storage_version_migration::ROW,
        crate::validating_admission_policy_status::ROW,
        // Last: it shares the stores that the others have requested.
        crate::garbage_collector::ROW,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn page_of_controllers_names_each() {
        let page = include_str!("../../../docs/controllers.md");
        for row in rows() {
            assert!(page.contains(&format!("`{}`", row.name)), "{}", row.name);
        }
    }

    #[test]
    fn names_are_unique_and_upstreams() {
        let names: BTreeSet<_> = rows().iter().map(|row| row.name).collect();
        assert_eq!(names.len(), rows().len());
        assert!(names.iter().all(|name| name.ends_with("-controller")));
    }
}
