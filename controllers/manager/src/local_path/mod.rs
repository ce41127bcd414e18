//! Makes volumes of claims as folders on nodes, and removes them: the default class `local-path`.
//!
//! Watches claims that the scheduler gave a node, and volumes whose claims are gone. The node's agent makes and removes the
//! folder (`nodes/NODE/proxy/localVolumes/pvc-UID`); the name is the claim's uid, and the path is the agent's to choose. The
//! volume is of type `local`, with the node's host name as its affinity. Claim, class and volume are read once more from the
//! server before anything is done for them.
//!
//! A tenant chooses nothing but the size, which is written down and not enforced, and a node that the class reaches. Calls to
//! one node are few at a time, in the turn of the namespaces that wait for them, and end soon; a node that is not ready is
//! not called: it keeps no other waiting.
//!
//! Never: a folder is removed whose volume still has its claim, or whose policy is Retain.

mod calls;
mod nodes;
mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::NodeView;
use crate::volume_binder::views::{ClaimView, ClassView, VolumeView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery_client::{ApiResource, Client, Informer};
use machinery_meta::ObjectKey;
use nodes::Nodes;
use reconcile::Provisioner;
use serde_json::json;
use std::time::Duration;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "local-path-provisioner-controller",
    queue: "local_path_claims",
    service_account: "local-path-provisioner",
    default: true,
    start,
};

/// The provisioner's name in classes, claims and volumes.
const PROVISIONER: &str = "knarr/local-path";
/// The class there is from the start.
const CLASS: &str = "local-path";
/// Says whether a class is that of claims without one.
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// Claims and volumes reconciled at a time; most of the time is spent waiting for nodes.
const WORKERS: usize = 16;
/// Pause between two tries to make the class.
const TRY_AGAIN: Duration = Duration::from_secs(1);

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let client = context.client(ROW.service_account);
    let recorder = context.recorder(&client, PROVISIONER);
    let volumes: Informer<VolumeView> = context.informers.of::<PersistentVolume, _>();
    let claims: Informer<ClaimView> = context.informers.of::<PersistentVolumeClaim, _>();
    let classes: Informer<ClassView> = context.informers.of::<StorageClass, _>();
    let nodes: Informer<NodeView> = context.informers.of::<Node, _>();
    let controller = ROW
        .controller(&context.runtime)
        .workers(WORKERS)
        .needs(&classes)
        .needs(&nodes)
        .watches(&claims, |change| {
            let new = change.new.as_ref().filter(|claim| plan::is_ours(claim));
            new.map(|claim| claim.key().clone())
        })
        .watches(&volumes, |change| {
            let new = change.new.as_ref().filter(|volume| plan::made_here(volume));
            new.map(|volume| volume.key().clone())
        });
    let known = classes.clone();
    let queue = controller.queue();
    let running = controller.run(Provisioner {
        nodes: Nodes::new(client.clone(), nodes, queue),
        client: client.clone(),
        recorder,
        volumes,
        claims,
        classes,
    });
    Box::pin(async move {
        make_class(&client, &known).await;
        running.await;
    })
}

/// Makes the class where there is none of its name: the default one, where the administrator has no other.
async fn make_class(client: &Client, classes: &Informer<ClassView>) {
    classes.synced().await;
    let has_default = classes.list().iter().any(|class| class.is_default);
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {DEFAULT: (!has_default).to_string()}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"
    });
    let resource = ApiResource::of::<StorageClass>();
    while let Err(error) = client.create(&resource, "", &class).await {
        if error.is_already_exists() {
            return;
        }
        tracing::debug!(class = CLASS, error = %error.chain(), "storage class not made");
        client.runtime().sleep(TRY_AGAIN).await;
    }
}

/// The key of a volume.
fn volume_key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}
