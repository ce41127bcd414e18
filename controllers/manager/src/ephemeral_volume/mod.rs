//! Makes the claims of generic ephemeral volumes: `POD-VOLUME`, owned by the pod, so that they go with it.
//!
//! Watches pods as they come (what their volumes request never changes), and claims that go: one is made again while its pod
//! is there. The template is read from the live pod, so that no cache keeps what a tenant may make large.
//!
//! Never: a claim of that name that is another's is used or changed; the pod waits, and an event says why.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::PodView;
use crate::volume_binder::views::ClaimView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use machinery_runtime::metrics::Family;
use reconcile::Ephemeral;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "ephemeral-volume-controller",
    queue: "ephemeral_volume",
    service_account: "ephemeral-volume-controller",
    default: true,
    start,
};

const CREATIONS: Family = Family::new(
    "ephemeral_volume_controller_create_total",
    "[ALPHA] Number of PersistentVolumeClaim creation requests",
    &[],
);
const FAILURES: Family = Family::new(
    "ephemeral_volume_controller_create_failures_total",
    "[ALPHA] Number of PersistentVolumeClaim creation requests",
    &[],
);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, "ephemeral_volume");
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let claims: Informer<ClaimView> = context.informers.of::<PersistentVolumeClaim, _>();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&pods, new_pod)
        .watches(&claims, {
            let pods = pods.clone();
            move |change| users_of_deleted(change, &pods)
        });
    controller.run(Ephemeral {
        client,
        recorder,
        pods,
        claims,
        creations: context.runtime.metrics().counters(&CREATIONS).of(&[]),
        failures: context.runtime.metrics().counters(&FAILURES).of(&[]),
    })
}

/// A pod that came with such a volume.
fn new_pod(change: &Change<PodView>) -> Option<ObjectKey> {
    let new = change.new.as_ref()?;
    let came = change.old.as_ref().is_none_or(|old| old.uid() != new.uid());
    let wants = new.has_ephemeral() && !new.header.is_deleting();
    (came && wants).then(|| new.key().clone())
}

/// The pods that have a claim of this name for a volume of theirs, whichever had made the one that is gone.
fn users_of_deleted(change: &Change<ClaimView>, pods: &Informer<PodView>) -> Vec<ObjectKey> {
    let Some(gone) = change.old.as_ref().filter(|_| change.is_removal()) else {
        return Vec::new();
    };
    let name = gone.name();
    // Its name is the pod's, a dash, and the volume's.
    let ends = name.match_indices('-').map(|(end, _)| end);
    let keys = ends.map(|end| ObjectKey::new(gone.namespace(), &name[..end]));
    keys.filter(|key| pods.get(key).is_some_and(|pod| pod.has_ephemeral()))
        .collect()
}
