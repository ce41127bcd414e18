//! Keeps the status of PodDisruptionBudgets, by which evictions are allowed: how many of a budget's pods are healthy, how many
//! must be, and how many disruptions that leaves.
//!
//! Watches: budgets (the key), pods (every budget that selects them; a pod that was to be disrupted is a key of its own), and
//! sets and Deployments, whose changed sizes change what percentages are of. `scales` finds the size that a pod's controller
//! requests, `plan` makes the status. Never: deletes a pod; that is the eviction's part.

mod plan;
mod reconcile;
mod scales;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::disruption_budget::covers;
use crate::views::{
    DeploymentView, DisruptionBudgetView, PodView, ReplicaSetView, ReplicationControllerView, SetView,
};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use machinery_client::{Change, IndexName, Informer};
use reconcile::{DisruptionReconciler, Key};
use scales::Scales;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "disruption-controller",
    queue: "disruption",
    service_account: "disruption-controller",
    default: true,
    start,
};

type Budgets = Informer<DisruptionBudgetView>;

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let budgets: Budgets = context.informers.of::<PodDisruptionBudget, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let sets: Informer<ReplicaSetView> = context.informers.of::<ReplicaSet, _>();
    let deployments: Informer<DeploymentView> = context.informers.of::<Deployment, _>();
    let controllers: Informer<ReplicationControllerView> = context.informers.of::<ReplicationController, _>();
    let by = || budgets.clone();
    let (by_pod, by_set, by_deployment, by_controller) = (by(), by(), by(), by());
    let controller = ROW
        .controller(&context.runtime)
        .watches(&budgets, |change| [Key::Budget(change.key().clone())])
        // Each pod is compared with all budgets of its namespace.
        .watches_in_turns(&pods, |_| true, move |change| keys_of_pod(&by_pod, change))
        .watches(&sets, move |change| {
            keys_of_size(&by_set, change, |set| set.view().replicas)
        })
        .watches(&deployments, move |change| {
            keys_of_size(&by_deployment, change, |deployment| deployment.replicas)
        })
        .watches(&controllers, move |change| {
            keys_of_size(&by_controller, change, |set| set.view().replicas)
        });
    controller.run(DisruptionReconciler {
        recorder: context.recorder(&client, "controllermanager"),
        scales: Scales::new(client.clone(), sets, deployments, controllers),
        client,
        runtime: context.runtime.clone(),
        budgets,
        pods,
        own_writes: Default::default(),
    })
}

/// The budgets that select a pod as it was or as it is, and the pod itself where that needs a look.
fn keys_of_pod(budgets: &Budgets, change: &Change<PodView>) -> Vec<Key> {
    let mut keys = Vec::new();
    let near = budgets.by_index(IndexName::NAMESPACE, &change.key().namespace);
    for pod in change.sides() {
        let covering = near.iter().filter(|budget| covers(budget, &pod.header));
        keys.extend(covering.map(|budget| Key::Budget(budget.key().clone())));
    }
    keys.sort();
    keys.dedup();
    let several = keys.len() > 1;
    if let Some(pod) = change
        .new
        .as_ref()
        .filter(|pod| several || pod.disrupted_since.is_some())
    {
        keys.push(Key::Pod(pod.key().clone()));
    }
    keys
}

/// The budgets of a namespace in which a workload gets another size.
fn keys_of_size<P>(budgets: &Budgets, change: &Change<P>, size: fn(&P) -> i32) -> Vec<Key> {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return Vec::new();
    };
    if size(&old.projection) == size(&new.projection) {
        return Vec::new();
    }
    let near = budgets.by_index(IndexName::NAMESPACE, &change.key().namespace);
    let scaled = near.iter().filter(|budget| budget.needs_scale());
    scaled.map(|budget| Key::Budget(budget.key().clone())).collect()
}
