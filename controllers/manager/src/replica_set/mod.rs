//! Keeps as many matching pods as `spec.replicas` requests, for ReplicaSets and, over [`SetView`], ReplicationControllers.
//!
//! Owns: pods. Watches: the sets (the key is the set), pods (the key is the controller owner; an orphan wakes every
//! set whose selector matches). Never: talks to nodes, touches a pod it neither owns nor adopts, reads the event that
//! woke it.

mod plan;
mod ranking;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::metrics::own_writes;
use crate::owners::{Owners, watch_owned};
use crate::pod_control::PodControl;
use crate::views::{PodView, ReplicaSetView, SetView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use machinery_client::{Informer, ListWatch};
use machinery_meta::ObjectKey;
use machinery_reconcile::Expectations;
use machinery_runtime::metrics::Family;
use reconcile::ReplicaSetReconciler;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "replicaset-controller",
    queue: "replicaset",
    service_account: "replicaset-controller",
    default: true,
    start,
};

/// Looks left out because the cache was behind.
const STALE_SKIPS: Family = Family::new(
    "replicaset_controller_stale_sync_skips_total",
    "[ALPHA] Total number of ReplicaSet syncs skipped due to a stale watch cache.",
    &["group", "resource"],
);
const AGE_RATIO: Family = Family::new(
    "replicaset_controller_sorting_deletion_age_ratio",
    "[ALPHA] The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. The intent \
     of this metric is to measure the rough efficacy of the sorting (and deletion) of pods when a replicaset scales down. \
     This only considers Ready pods when calculating and reporting.",
    &[],
)
.exponential(0.25, 2.0, 6);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    run::<ReplicaSetView>(context, &ROW)
}

/// Runs the controller of one kind of sets; its events are of the component that its service account is named for.
pub(crate) fn run<P: SetView>(
    context: &ControllerContext,
    row: &ControllerDescriptor,
) -> BoxFuture<'static, ()> {
    let client = context.client(row.service_account);
    let recorder = context.recorder(&client, row.service_account);
    let sets: Informer<P> = context.informers.informer(ListWatch::all(P::resource()));
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let kind = P::resource();
    let controller = row
        .controller(&context.runtime)
        .watches(&sets, |change| [change.key().clone()]);
    let owners = Owners {
        kind: kind.kind.clone(),
        cache: sets.clone(),
        selector: |set: &P| &set.view().selector,
    };
    let controller = watch_owned(controller, &pods, owners, |key| key);
    let expectations = Expectations::default();
    let woken = expectations.requeue_after_lists(&pods, controller.queue(), ObjectKey::clone);
    let reconciler = ReplicaSetReconciler {
        pod_control: PodControl::new(client.clone(), recorder),
        client,
        runtime: context.runtime.clone(),
        sets,
        pods,
        expectations,
        own_writes: own_writes(context, &STALE_SKIPS, [&kind.group, &kind.plural]),
        age_ratio: context.runtime.metrics().histograms(&AGE_RATIO).of(&[]),
    };
    controller.keeps(woken).run(reconciler)
}
