//! Gives every pod of a set a place: a name with an ordinal, and claims that stay when the pod goes.
//!
//! Owns: pods, named by their ordinals; claims made from templates, where the retention policy says so; revisions of its
//! template. Watches: StatefulSets (the key), pods (the controller owner; an orphan wakes every set whose selector
//! matches), revisions (the controller owner), claims (every set whose selector matches; upstream does not watch them
//! and sees a claim that has gone with the next event of a pod).
//!
//! A round claims pods and revisions, finds the current and the update revision, plans, acts, writes status. Ordered
//! management does one step a round and waits for what comes before it; parallel management does all at once.
//! Never: two pods of one ordinal, and a decision on a cache that does not show the last one yet.
//!
//! `identity` knows names, `claims` what is made of claim templates and its owners, `plan` decides, `act` does it.

mod act;
mod claims;
mod identity;
mod metrics;
mod plan;
mod pods;
mod reconcile;
mod status;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::history::{History, RevisionView};
use crate::metrics::own_writes;
use crate::owners::{Owners, watch_owned};
use crate::pod_control::{PodControl, Wording};
use crate::views::{PodView, StatefulSetView};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery_client::{IndexName, Informer};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::Expectations;
use machinery_runtime::metrics::Family;
use reconcile::StatefulSetReconciler;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "statefulset-controller",
    queue: "statefulset",
    service_account: "statefulset-controller",
    default: true,
    start,
};

const KIND: &str = "StatefulSet";

/// Looks left out because the cache was behind.
const STALE_SKIPS: Family = Family::new(
    "statefulset_controller_stale_sync_skips_total",
    "[ALPHA] Total number of StatefulSet syncs skipped due to a stale watch cache.",
    &["group", "resource"],
);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    let sets: Informer<StatefulSetView> = context.informers.of::<StatefulSet, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let revisions: Informer<RevisionView> = context.informers.of::<ControllerRevision, _>();
    let claims: Informer<()> = context.informers.of::<PersistentVolumeClaim, _>();
    let by_claim = sets.clone();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&sets, |change| [change.key().clone()])
        .watches_in_turns(
            &claims,
            |_| true,
            move |change| sets_near(&by_claim, &change.latest().header),
        );
    let owners = || Owners {
        kind: KIND.into(),
        cache: sets.clone(),
        selector: |set: &StatefulSetView| &set.selector,
    };
    let controller = watch_owned(controller, &pods, owners(), |key| key);
    let controller = watch_owned(controller, &revisions, owners(), |key| key);
    let readings = metrics::read(context.runtime.metrics(), &sets);
    let expectations = Expectations::default();
    let woken = expectations.requeue_after_lists(&pods, controller.queue(), ObjectKey::clone);
    let reconciler = StatefulSetReconciler {
        _readings: readings,
        pod_control: PodControl::new(client.clone(), recorder).with_wording(Wording::StatefulSet),
        history: History::new(client.clone(), context.runtime.clone(), revisions),
        client,
        runtime: context.runtime.clone(),
        sets,
        pods,
        claims,
        expectations,
        own_writes: own_writes(context, &STALE_SKIPS, ["apps", "statefulsets"]),
    };
    controller.keeps(woken).run(reconciler)
}

/// The sets of a claim's namespace whose selector matches it: claims have the labels of the selector, and mostly no owner.
fn sets_near(sets: &Informer<StatefulSetView>, claim: &ObjectHeader) -> Vec<ObjectKey> {
    let near = sets.by_index(IndexName::NAMESPACE, &claim.key.namespace);
    let matching = near.iter().filter(|set| set.selector.matches(claim));
    matching.map(|set| set.key().clone()).collect()
}
