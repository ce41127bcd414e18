//! Gather, plan, write status.

use super::ROW;
use super::plan::{Plan, PodRef, counts, fail_safe, overdue_at, plan};
use super::scales::{ScaleError, Scales};
use crate::heavy;
use crate::pod_control::reference;
use crate::views::disruption_budget::covers;
use crate::views::{DisruptionBudgetView, PodView, seconds};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery_client::{ApiResource, Client, Edit, IndexName, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, Outcome, QueueKey, ReconcileError, Reconciler, WriteTracker};
use machinery_runtime::Runtime;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Key of the work queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Budget(ObjectKey),
    /// A pod that was to go, or that several budgets select.
    Pod(ObjectKey),
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Budget(key) | Self::Pod(key) => &key.namespace,
        }
    }
}

type Budget = Arc<Object<DisruptionBudgetView>>;

pub(super) struct DisruptionReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) budgets: Informer<DisruptionBudgetView>,
    pub(super) pods: Informer<PodView>,
    pub(super) scales: Scales,
    pub(super) own_writes: WriteTracker,
}

impl Reconciler for DisruptionReconciler {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Budget(key) => self.budget(key).await,
                Key::Pod(key) => self.pod(key).await,
            }
        })
    }
}

impl DisruptionReconciler {
    async fn budget(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(budget) = self.budgets.get(key) else {
            self.own_writes.forget(key);
            return Ok(Outcome::Done);
        };
        if self.own_writes.cache_is_stale(&budget) {
            return Ok(Outcome::Done);
        }
        let about = reference(&ApiResource::of::<PodDisruptionBudget>(), &budget.header);
        let pods = self.pods.by_index(IndexName::NAMESPACE, &key.namespace);
        let flow = || heavy::flow(ROW.name, &key.namespace);
        let (pods, _) = heavy::split(&self.runtime, flow, &budget.selector, pods).await;
        if pods.is_empty() {
            self.recorder.normal(&about, "NoPods", "No matching pods found");
        }
        let scale = if budget.needs_scale() {
            match self.scales.of(&pods).await {
                Ok(scale) => scale,
                Err(why) => {
                    let text = format!("Failed to calculate the number of expected pods: {why}");
                    self.recorder
                        .warning(&about, "CalculateExpectedPodCountFailed", text);
                    return self.fail(&budget, why).await;
                }
            }
        } else {
            Default::default()
        };
        if scale.unmanaged > 0 {
            self.recorder.warning(&about, "UnmanagedPods", unmanaged(&budget));
        }
        let counts = counts(&budget, pods.len(), scale.replicas);
        self.write(&budget, plan(&budget, &pods, counts, self.runtime.now()))
            .await
    }

    async fn write(&self, budget: &Budget, plan: Plan) -> Result<Outcome, ReconcileError> {
        let key = budget.key();
        for pod in &plan.not_deleted {
            let about = reference(&ApiResource::of::<Pod>(), &pod.header);
            let text = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            self.recorder.warning(&about, "NotDeleted", text);
        }
        self.write_status(budget, &plan.status).await?;
        Ok(match plan.recheck_at {
            // A moment later, so that it is overdue then.
            Some(at) => Outcome::RequeueAfter(self.until(at) + Duration::from_millis(1)),
            None => Outcome::Done,
        })
    }

    /// The counts are not known: nothing is allowed until they are.
    async fn fail(&self, budget: &Budget, why: ScaleError) -> Result<Outcome, ReconcileError> {
        let status = fail_safe(budget, &why.to_string(), self.runtime.now());
        self.write_status(budget, &status).await?;
        match why {
            // What a pod says of its owner stays as it is until the pod changes.
            ScaleError::Unknown(_) => Ok(Outcome::Done),
            ScaleError::NotYet(_) => Err(ReconcileError::Unusable(why.to_string())),
            ScaleError::Request(error) => Err(ReconcileError::doing("reading a scale")(error)),
        }
    }

    async fn write_status(
        &self,
        budget: &Budget,
        status: &PodDisruptionBudgetStatus,
    ) -> Result<(), ReconcileError> {
        if *budget.status.get() == *status {
            return Ok(());
        }
        let resource = ApiResource::of::<PodDisruptionBudget>();
        let mut edit = Edit::of(&resource, &budget.json())?;
        edit.set("status", status)?;
        match self
            .client
            .writes()
            .update(&resource, budget.key(), "status", edit.body())
            .await
        {
            Ok(written) => {
                self.own_writes.record_write(budget.key(), &written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            // An eviction came first; what it wrote wakes this key.
            Err(error) => Err(ReconcileError::doing("writing status")(error)),
        }
    }

    async fn pod(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.header.is_deleting()) else {
            return Ok(Outcome::Done);
        };
        self.warn_of_several(&pod);
        let Some(since) = pod.disrupted_since else {
            return Ok(Outcome::Done);
        };
        let wait = self.until(overdue_at(since));
        if !wait.is_zero() {
            return Ok(Outcome::RequeueAfter(wait));
        }
        let body = json!({
            "metadata": {"uid": pod.uid().0, "resourceVersion": pod.revision.to_string()},
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
                "observedGeneration": pod.header.generation,
                "lastTransitionTime": seconds(self.runtime.now()),
            }]},
        });
        let pods = ApiResource::of::<Pod>();
        match self
            .client
            .patch(&pods, key, "status", &Patch::Strategic, &body)
            .await
        {
            Err(error) if !error.is_not_found() => Err(ReconcileError::doing(
                "clearing a stale DisruptionTarget condition",
            )(error)),
            _ => Ok(Outcome::Done),
        }
    }

    /// Evictions of such a pod are refused.
    fn warn_of_several(&self, pod: &PodRef) {
        let near = self.budgets.by_index(IndexName::NAMESPACE, pod.namespace());
        let mut covering = near.iter().filter(|budget| covers(budget, &pod.header));
        if let (Some(first), Some(_)) = (covering.next(), covering.next()) {
            let (namespace, name, chosen) = (pod.namespace(), pod.name(), first.name());
            let text = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {chosen:?} arbitrarily."
            );
            let about = reference(&ApiResource::of::<Pod>(), &pod.header);
            self.recorder
                .warning(&about, "MultiplePodDisruptionBudgets", text);
        }
    }

    fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.runtime.now())).unwrap_or_default()
    }
}

/// Upstream's sentence, with the selector as Go prints it.
fn unmanaged(budget: &Budget) -> String {
    let whole = budget.decode::<PodDisruptionBudget>().ok();
    let selector = whole.and_then(|own| own.spec?.selector);
    let selector = selector.map_or_else(|| "nil".to_owned(), |own| go_text(&own));
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

/// The selector as Go prints a pointer to it.
pub(super) fn go_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|own| {
        let (key, operator) = (&own.key, &own.operator);
        let values = own.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}
