//! Fields of a PodDisruptionBudget that controllers read.

use crate::views::Selector;
use k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery_client::{Folded, Index, Object, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// The projection of a PodDisruptionBudget.
#[derive(Debug, Clone)]
pub struct DisruptionBudgetView {
    /// `spec.minAvailable`.
    pub min_available: Option<IntOrString>,
    /// `spec.maxUnavailable`.
    pub max_unavailable: Option<IntOrString>,
    /// `spec.selector`.
    pub selector: Selector,
    /// `status`.
    pub status: Folded<PodDisruptionBudgetStatus>,
}

impl DisruptionBudgetView {
    /// Reports whether its numbers refer to the size that the pods' controllers want, and not to the pods that exist.
    pub fn needs_scale(&self) -> bool {
        self.max_unavailable.is_some() || matches!(self.min_available, Some(IntOrString::String(_)))
    }
}

/// Reports whether the budget covers a pod.
pub fn covers(budget: &Object<DisruptionBudgetView>, pod: &ObjectHeader) -> bool {
    budget.namespace() == pod.key.namespace && budget.selector.matches(pod)
}

impl Projection for DisruptionBudgetView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let budget: Budget = machinery_client::json::from_slice(json)?;
        Ok(Self {
            min_available: budget.spec.min_available,
            max_unavailable: budget.spec.max_unavailable,
            selector: budget.spec.selector,
            status: budget.status,
        })
    }
}

#[derive(Deserialize)]
struct Budget {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Folded<PodDisruptionBudgetStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    min_available: Option<IntOrString>,
    max_unavailable: Option<IntOrString>,
    selector: Selector,
}
