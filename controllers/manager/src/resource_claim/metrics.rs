//! `dynamic_resource_allocation_*`, as far as the controller has them.

use super::view::DeviceClaimView;
use machinery_client::Informer;
use machinery_runtime::metrics::{ComponentMetrics, Counters, Family, Reading};

const CREATES: Family = Family::new(
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status, admin access, and owning API group \
     and kind (either Pod or scheduling.k8s.io/PodGroup)",
    &["status", "admin_access", "owner_api_group", "owner_api_kind"],
);
const CLAIMS: Family = Family::new(
    "dynamic_resource_allocation_resource_claims",
    "[ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be \
     'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually \
     created by a user).",
    &["allocated", "admin_access", "source"],
);

pub(super) struct ClaimMetrics {
    creates: Counters,
    _claims: Reading,
}

impl ClaimMetrics {
    pub(super) fn new(metrics: &ComponentMetrics, claims: &Informer<DeviceClaimView>) -> Self {
        let claims = claims.clone();
        let word = |holds: bool| if holds { "true" } else { "false" };
        Self {
            creates: metrics.counters(&CREATES),
            _claims: metrics.read(&CLAIMS, move |samples| {
                claims.for_each(|claim| {
                    let source = match &claim.pod_claim {
                        _ if claim.is_extended => "extended_resource",
                        Some(name) if !name.is_empty() => "resource_claim_template",
                        _ => "",
                    };
                    let labels = [word(claim.is_allocated), word(claim.has_admin_access), source];
                    samples.add(&labels, 1.0);
                });
            }),
        }
    }

    /// A claim was made for a pod, or not.
    pub(super) fn created(&self, succeeded: bool, has_admin_access: bool) {
        let status = if succeeded { "success" } else { "failure" };
        let admin_access = if has_admin_access { "true" } else { "false" };
        self.creates.of(&[status, admin_access, "", "Pod"]).inc();
    }
}
