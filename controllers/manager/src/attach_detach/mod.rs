//! Attaches the volumes of CSI drivers to the nodes of the pods that need them, and detaches them when no pod does.
//!
//! The key is a node: its attachments are reconciled together, and its status has one writer. Watches pods, claims, volumes,
//! drivers and nodes (which volume is needed where), and VolumeAttachments (which one is where). A VolumeAttachment is a
//! request to the driver's attacher and its answer, so that there is no other state: after a restart those that are there
//! are adopted. An attachment is made, its attacher says that it is attached, and `status.volumesAttached` of the node names
//! it then. On the way back the node's list comes first, then the node is checked for a use of the volume, then the
//! attachment is deleted; its attacher's finalizer keeps it until the volume is detached.
//!
//! Never: a volume for one node on two, be it that the cache is late or an answer was lost ([`memory`]); a volume taken from
//! a node that uses it, unless the node is unhealthy for six minutes or marked as out of service.
//! Volumes of other plugins (`iscsi`, `fc`) are not attached: upstream reports them without an attachment.

mod memory;
mod metrics;
mod names;
mod plan;
mod reconcile;
mod stores;
#[cfg(test)]
mod tests;
pub(crate) mod views;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::{NodeView, PodView};
use crate::volume_binder::views::{ClaimView, VolumeView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use machinery_client::{Change, Informers};
use machinery_meta::ObjectKey;
use machinery_reconcile::Controller;
use memory::Departures;
use metrics::Metrics;
use parking_lot::Mutex;
use reconcile::Attacher;
use std::sync::Arc;
use stores::Stores;
use views::{AttachmentView, DriverView};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "persistentvolume-attach-detach-controller",
    queue: "pvcs",
    service_account: "attachdetach-controller",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let stores = Stores::new(&context.informers);
    let departures: Arc<Departures> = Arc::default();
    let controller = watch(ROW.controller(&context.runtime), &stores, &departures);
    let queue = controller.queue();
    controller.run(Attacher {
        recorder: context.recorder(&client, "attachdetach-controller"),
        client,
        runtime: context.runtime.clone(),
        queue,
        metrics: Metrics::new(context.runtime.metrics(), &stores),
        stores,
        memory: Mutex::default(),
        departures,
        forces: !context.config.disable_force_detach_on_timeout,
    })
}

impl Stores {
    fn new(informers: &Informers) -> Self {
        Self {
            pods: informers.of::<Pod, _>(),
            claims: informers.of::<PersistentVolumeClaim, _>(),
            volumes: informers.of::<PersistentVolume, _>(),
            nodes: informers.of::<Node, _>(),
            drivers: informers.of::<CSIDriver, _>(),
            attachments: informers.of::<VolumeAttachment, _>(),
        }
    }
}

fn watch(
    controller: Controller<Attacher>,
    stores: &Stores,
    departures: &Arc<Departures>,
) -> Controller<Attacher> {
    let (of_claim, of_volume, of_driver, of_attachment) =
        (stores.clone(), stores.clone(), stores.clone(), stores.clone());
    let departures = Arc::clone(departures);
    controller
        .watches(&stores.pods, nodes_of_pod)
        .watches(&stores.claims, move |change| nodes_of_claim(&of_claim, change))
        .watches(&stores.volumes, move |change| nodes_of_volume(&of_volume, change))
        .watches(&stores.nodes, move |change| node(&departures, change))
        .watches(&stores.drivers, move |change| nodes_of_driver(&of_driver, change))
        .watches(&stores.attachments, move |change| {
            nodes_of_attachment(&of_attachment, change)
        })
}

/// The node of a pod with claims, before and after.
fn nodes_of_pod(change: &Change<PodView>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new) {
        let facts = |pod| (stores::is_done(pod), &pod.node, pod.uid());
        if facts(old) == facts(new) {
            return Vec::new();
        }
    }
    let with_volume = change
        .sides()
        .filter(|pod| !pod.claims.is_empty() && !pod.node.is_empty());
    with_volume.map(|pod| ObjectKey::cluster(&*pod.node)).collect()
}

fn nodes_of_claim(stores: &Stores, change: &Change<ClaimView>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && (&old.volume, &old.phase, old.uid()) == (&new.volume, &new.phase, new.uid())
    {
        return Vec::new();
    }
    let claim = change.key();
    stores.nodes_of_claim(&claim.namespace, &claim.name)
}

fn nodes_of_volume(stores: &Stores, change: &Change<VolumeView>) -> Vec<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && (&old.csi, &old.claim, &old.access_modes) == (&new.csi, &new.claim, &new.access_modes)
    {
        return Vec::new();
    }
    let claims = change.sides().filter(|volume| volume.csi.is_some());
    let claims = claims.filter_map(|volume| volume.claim.as_ref());
    claims
        .flat_map(|claim| stores.nodes_of_claim(&claim.namespace, &claim.name))
        .collect()
}

/// The node itself; one that goes is remembered.
fn node(departures: &Departures, change: &Change<NodeView>) -> Option<ObjectKey> {
    let same = match (&change.old, &change.new) {
        (Some(old), Some(new)) => !stores::differ(old, new),
        (Some(old), None) => {
            departures.add(old);
            false
        }
        _ => false,
    };
    (!same).then(|| change.key().clone())
}

/// Every node, where a driver begins or ceases to attach.
fn nodes_of_driver(stores: &Stores, change: &Change<DriverView>) -> Vec<ObjectKey> {
    let attaches = |side: &Option<Arc<machinery_client::Object<DriverView>>>| {
        side.as_ref().is_none_or(|driver| driver.attaches)
    };
    if attaches(&change.old) == attaches(&change.new) {
        return Vec::new();
    }
    let nodes = stores.nodes.list();
    nodes.iter().map(|node| node.key().clone()).collect()
}

/// The node of an attachment, and where it is gone those that wait for its volume.
fn nodes_of_attachment(stores: &Stores, change: &Change<AttachmentView>) -> Vec<ObjectKey> {
    let own = change.latest();
    let mut nodes = vec![ObjectKey::cluster(&*own.node)];
    if change.is_removal() {
        let volume = stores.volumes.get(&ObjectKey::cluster(&*own.volume));
        if let Some(csi) = volume.as_ref().and_then(|volume| volume.csi.as_ref()) {
            nodes.extend(stores.nodes_of_handle(&csi.driver, &csi.volume_handle));
        }
    }
    nodes
}
