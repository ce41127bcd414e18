//! Keeps the ServiceAccount `default` in every namespace that is staying.
//!
//! Watches: namespaces (the key), ServiceAccounts (the going of `default` wakes its namespace).

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::NamespaceView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use machinery_client::{ApiResource, Client, Informer, ListWatch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use serde_json::json;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "serviceaccount-controller",
    queue: "serviceaccount",
    service_account: "service-account-controller",
    default: true,
    start,
};

const NAME: &str = "default";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let namespaces: Informer<NamespaceView> = context.informers.of::<Namespace, _>();
    let source = ListWatch::of::<ServiceAccount>().fields(format!("metadata.name={NAME}"));
    let accounts: Informer<()> = context.informers.informer(source);
    let controller = ROW
        .controller(&context.runtime)
        .watches(&namespaces, |change| [change.key().clone()])
        .watches(&accounts, |change| {
            change
                .is_removal()
                .then(|| ObjectKey::cluster(change.key().namespace.clone()))
        });
    controller.run(Accounts {
        client: context.client(ROW.service_account),
        namespaces,
        accounts,
    })
}

struct Accounts {
    client: Client,
    namespaces: Informer<NamespaceView>,
    accounts: Informer<()>,
}

impl Reconciler for Accounts {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let staying = self
                .namespaces
                .get(key)
                .is_some_and(|own| !own.terminating && !own.header.is_deleting());
            if !staying || self.accounts.get(&ObjectKey::new(&key.name, NAME)).is_some() {
                return Ok(Outcome::Done);
            }
            let body = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": NAME, "namespace": key.name}});
            match self
                .client
                .create(&ApiResource::of::<ServiceAccount>(), &key.name, &body)
                .await
            {
                Err(error) if error.is_already_exists() || error.has_cause("NamespaceTerminating") => {
                    Ok(Outcome::Done)
                }
                Err(error) if error.is_not_found() => Ok(Outcome::Done),
                Err(error) => Err(ReconcileError::doing("creating the default service account")(
                    error,
                )),
                Ok(_) => Ok(Outcome::Done),
            }
        })
    }
}
