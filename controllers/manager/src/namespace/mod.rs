//! Empties namespaces that are being deleted, then lets them go.
//!
//! Watches: namespaces (the key). Asks discovery what a namespace may hold, deletes pods first and the rest once no pod
//! is left, says in conditions what is still in the way, and at last takes `kubernetes` off `spec.finalizers`.
//! Never: deletes anything of a namespace that is not being deleted.

mod content;
mod plan;
mod reconcile;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::NamespaceView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use machinery_client::Informer;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "namespace-controller",
    queue: "namespace",
    service_account: "namespace-controller",
    default: true,
    start,
};

/// Finalizer that keeps a namespace until this controller is done.
const FINALIZER: &str = "kubernetes";
/// Namespaces emptied at a time.
const WORKERS: usize = 10;

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let namespaces: Informer<NamespaceView> = context.informers.of::<Namespace, _>();
    let controller = ROW
        .controller(&context.runtime)
        .workers(WORKERS)
        .watches(&namespaces, |change| {
            let going = change
                .new
                .as_ref()
                .filter(|namespace| namespace.header.is_deleting());
            going.map(|namespace| namespace.key().clone())
        });
    controller.run(reconcile::NamespaceReconciler {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        namespaces,
    })
}
