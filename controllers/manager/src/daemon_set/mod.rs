//! Keeps one pod of a set on every node that the set's template may run on.
//!
//! Owns: pods, and ControllerRevisions, one per template seen. Watches: DaemonSets (the key is the set), pods and
//! revisions (the controller owner; an orphan wakes every set whose selector matches), nodes (every set, when one comes,
//! goes, or changes its labels or taints). Never: binds a pod; the scheduler does, by the affinity that each pod has to
//! its node's name.
//!
//! One round: claim, find the revision of the present template or make it and wait for its event, then either keep the
//! nodes' pods (`plan`) or, where there is nothing to keep, roll on (`rolling`). `eligibility` says which nodes a
//! template may run on, `backoff` how long a failed pod stays.

mod backoff;
mod creations;
mod eligibility;
mod new_pod;
mod plan;
mod reconcile;
mod revisions;
mod rolling;
mod status;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::history::{History, RevisionView};
use crate::metrics::own_writes;
use crate::owners::{Owners, watch_owned};
use crate::pod_control::PodControl;
use crate::views::{DaemonSetView, NodeView, PodView};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::Expectations;
use machinery_runtime::metrics::Family;
use reconcile::DaemonSetReconciler;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "daemonset-controller",
    queue: "daemonset",
    service_account: "daemon-set-controller",
    default: true,
    start,
};

const KIND: &str = "DaemonSet";

/// Looks left out because the cache was behind.
const STALE_SKIPS: Family = Family::new(
    "daemonset_controller_stale_sync_skips_total",
    "[ALPHA] Total number of DaemonSet syncs skipped due to a stale watch cache.",
    &["group", "resource"],
);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    let sets: Informer<DaemonSetView> = context.informers.of::<DaemonSet, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let revisions: Informer<RevisionView> = context.informers.of::<ControllerRevision, _>();
    let by_node = sets.clone();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&sets, |change| [change.key().clone()])
        .watches(&nodes, move |change| sets_of_node(&by_node, change));
    let owners = || Owners {
        kind: KIND.into(),
        cache: sets.clone(),
        selector: |set: &DaemonSetView| &set.selector,
    };
    let controller = watch_owned(controller, &pods, owners(), |key| key);
    let controller = watch_owned(controller, &revisions, owners(), |key| key);
    let expectations = Expectations::default();
    let woken = expectations.requeue_after_lists(&pods, controller.queue(), ObjectKey::clone);
    let reconciler = DaemonSetReconciler {
        pod_control: PodControl::new(client.clone(), recorder),
        history: History::new(client.clone(), context.runtime.clone(), revisions),
        client,
        runtime: context.runtime.clone(),
        sets,
        pods,
        nodes,
        expectations,
        own_writes: own_writes(context, &STALE_SKIPS, ["apps", "daemonsets"]),
        creations: Default::default(),
        backoff: Default::default(),
    };
    controller.keeps(woken).run(reconciler)
}

/// Every set, when a node comes or goes, or says something else of what may run on it.
fn sets_of_node(sets: &Informer<DaemonSetView>, change: &Change<NodeView>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.header.labels == new.header.labels
        && old.taints == new.taints
    {
        return Vec::new();
    }
    sets.list().iter().map(|set| set.key().clone()).collect()
}
