//! Binds claims to volumes, both ways, and releases volumes whose claims have gone.
//!
//! Watches: claims and volumes (the keys; one wakes the other), storage classes (claims that wait for one). A claim is
//! bound by four writes: the volume's `claimRef`, its phase, the claim's `volumeName`, its status. Each carries the
//! resource version that the plan was made from, so that of two claims that want one volume the second is refused and
//! looks again; what is left undone is finished by the next reconcile. Claims of a class that waits for its first
//! pod are bound to volumes that name them alone; the scheduler makes such a volume name its claim.
//!
//! Never: two claims on one volume, and a volume with data given to another claim without its administrator.
//! Volumes are provisioned and deleted by the provisioner of their class, which a claim's annotation calls.

mod matching;
mod metrics;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;
pub(crate) mod views;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::PodView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery_client::{Change, Informer};
use machinery_meta::ObjectKey;
use reconcile::{Binder, Stores};
use views::{ClaimView, ClassView, VolumeView};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "persistentvolume-binder-controller",
    queue: "claims",
    service_account: "persistent-volume-binder",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, ROW.name);
    let volumes: Informer<VolumeView> = context.informers.of::<PersistentVolume, _>();
    let claims: Informer<ClaimView> = context.informers.of::<PersistentVolumeClaim, _>();
    let classes: Informer<ClassView> = context.informers.of::<StorageClass, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let (of_volume, of_class) = (claims.clone(), claims.clone());
    let controller = ROW
        .controller(&context.runtime)
        .needs(&pods)
        .watches(&volumes, move |change| {
            let mut keys = vec![change.key().clone()];
            keys.extend(claims_near(&of_volume, change));
            keys
        })
        .watches(&claims, |change| {
            let sides = change.sides().map(|claim| ObjectKey::cluster(&*claim.volume));
            let volumes = sides.filter(|key| !key.name.is_empty());
            let mut keys: Vec<ObjectKey> = volumes.collect();
            keys.push(change.key().clone());
            keys
        })
        .watches(&classes, move |change| claims_of_class(&of_class, change));
    let queue = controller.queue();
    let readings = metrics::read(context.runtime.metrics(), &volumes, &claims);
    controller.run(Binder {
        client,
        recorder,
        queue,
        _readings: readings,
        stores: Stores {
            volumes,
            claims,
            classes,
            pods,
        },
    })
}

/// Claims that a volume's change may concern: the one that it names, those that name it, and, where it is free, those
/// that wait for one of its class.
fn claims_near(claims: &Informer<ClaimView>, change: &Change<VolumeView>) -> Vec<ObjectKey> {
    let named = change.sides().filter_map(|volume| volume.claim.as_ref());
    let mut keys: Vec<ObjectKey> = named
        .map(|own| ObjectKey::new(&*own.namespace, &*own.name))
        .collect();
    let volume = change.latest();
    let mut wanted = vec![ClaimView::of_volume(volume.name())];
    if volume.claim.is_none() && !change.is_removal() {
        wanted.push(ClaimView::of_class(&volume.class));
        // A claim without a class takes volumes without one.
        wanted.extend(volume.class.is_empty().then(|| ClaimView::ANY_CLASS.to_owned()));
    }
    keys.extend(wanting(claims, &wanted));
    keys
}

/// Claims that wait for a volume of a class that changed, or for a default class.
fn claims_of_class(claims: &Informer<ClaimView>, change: &Change<ClassView>) -> Vec<ObjectKey> {
    let class = change.latest();
    let mut wanted = vec![ClaimView::of_class(class.name())];
    wanted.extend(class.is_default.then(|| ClaimView::ANY_CLASS.to_owned()));
    wanting(claims, &wanted).collect()
}

fn wanting<'a>(
    claims: &'a Informer<ClaimView>,
    wanted: &'a [String],
) -> impl Iterator<Item = ObjectKey> + 'a {
    let found = wanted
        .iter()
        .flat_map(|wanted| claims.by_index(ClaimView::WANTED, wanted));
    found.map(|claim| claim.key().clone())
}
