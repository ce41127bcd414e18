//! Keeps as many matching pods as `spec.replicas` asks for.
//!
//! Owns: pods. Watches: ReplicaSets (the key is the set), pods (the key is the controller owner; an orphan wakes every
//! set whose selector matches). Never: talks to nodes, touches a pod it neither owns nor adopts, reads the event that
//! woke it.

mod plan;
mod ranking;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::owners::owners_of;
use crate::pod_control::PodControl;
use crate::views::{PodView, ReplicaSetView};
use futures::future::BoxFuture;
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use machinery_client::Informer;
use machinery_reconcile::Controller;
use reconcile::ReplicaSetReconciler;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "replicaset-controller",
    service_account: "replicaset-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    let sets: Informer<ReplicaSetView> = context.informers.of::<ReplicaSet, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let by_pod = sets.clone();
    let controller = Controller::new(ROW.name, context.runtime.clone())
        .watches(&sets, |change| [change.key().clone()])
        .watches(&pods, move |change| {
            owners_of(change, "ReplicaSet", &by_pod, |set| &set.selector)
        });
    let reconciler = ReplicaSetReconciler {
        pod_control: PodControl::new(client.clone(), recorder),
        client,
        runtime: context.runtime.clone(),
        sets,
        pods,
        expectations: Default::default(),
        own_writes: Default::default(),
    };
    controller.run(reconciler)
}
