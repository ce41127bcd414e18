//! Rolls a Deployment's pods from one template to the next, through ReplicaSets.
//!
//! Owns: ReplicaSets, one per template seen, named by the template's hash. Watches: Deployments (the key), ReplicaSets
//! (the controller owner; an orphan wakes every Deployment whose selector matches), pods (their going matters to
//! `Recreate`). One round takes at most one kind of step: claim, then pause or scale in proportion, then the strategy.
//! Never: creates or deletes a pod.
//!
//! `revisions` numbers the sets and keeps the history, `rolling` and `scaling` decide replica counts, `status` reports.

mod plan;
mod reconcile;
mod revisions;
mod rolling;
mod scaling;
mod sets;
mod snapshot;
mod status;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::owners::{Owners, watch_owned};
use crate::views::{DeploymentView, PodView, ReplicaSetView};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::Expectations;
use reconcile::DeploymentReconciler;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "deployment-controller",
    queue: "deployment",
    service_account: "deployment-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    let deployments: Informer<DeploymentView> = context.informers.of::<Deployment, _>();
    let sets: Informer<ReplicaSetView> = context.informers.of::<ReplicaSet, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let by_pod = sets.clone();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&deployments, |change| [change.key().clone()])
        .watches(&pods, move |change| deployment_of_gone_pod(&by_pod, change));
    let owners = Owners {
        kind: "Deployment".into(),
        cache: deployments.clone(),
        selector: |deployment: &DeploymentView| &deployment.selector,
    };
    let controller = watch_owned(controller, &sets, owners, |key| key);
    let expectations = Expectations::default();
    let woken = expectations.requeue_after_lists(&sets, controller.queue(), ObjectKey::clone);
    let reconciler = DeploymentReconciler {
        client,
        recorder,
        runtime: context.runtime.clone(),
        deployments,
        sets,
        pods,
        expectations,
        own_writes: Default::default(),
    };
    controller.keeps(woken).run(reconciler)
}

/// `Recreate` waits until the last old pod is gone or has ended.
fn deployment_of_gone_pod(sets: &Informer<ReplicaSetView>, change: &Change<PodView>) -> Option<ObjectKey> {
    let pod = change.latest();
    if !change.is_removal() && !pod.is_terminal() {
        return None;
    }
    let owner = pod
        .header
        .controller()
        .filter(|owner| &*owner.kind == "ReplicaSet")?;
    let set = sets.get(&ObjectKey::new(pod.namespace(), &*owner.name))?;
    let deployment = set
        .header
        .controller()
        .filter(|owner| &*owner.kind == "Deployment")?;
    Some(ObjectKey::new(pod.namespace(), &*deployment.name))
}
