//! Publishes the cluster's CA as the ConfigMap `kube-root-ca.crt` of every namespace, where pods mount it from.
//!
//! Watches: namespaces (the key), the ConfigMaps of that name.

use crate::config::Config;
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::metrics::SyncMetrics;
use crate::views::NamespaceView;
use crate::views::template::fnv;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use machinery_client::{ApiResource, Client, ClientError, Edit, Informer, ListWatch, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::metrics::Family;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "root-ca-certificate-publisher-controller",
    queue: "root_ca_cert_publisher",
    service_account: "root-ca-cert-publisher",
    default: true,
    start,
};

const SYNCS: Family = Family::new(
    "root_ca_cert_publisher_sync_total",
    "[ALPHA] Number of namespace syncs happened in root ca cert publisher.",
    &["code"],
);
const SYNC_DURATION: Family = Family::new(
    "root_ca_cert_publisher_sync_duration_seconds",
    "[ALPHA] Number of namespace syncs happened in root ca cert publisher.",
    &["code"],
)
.exponential(0.001, 2.0, 15);

const NAME: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";
/// Upstream's text; it is shown to users.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let namespaces: Informer<NamespaceView> = context.informers.of::<Namespace, _>();
    let source = ListWatch::of::<ConfigMap>().fields(format!("metadata.name={NAME}"));
    let published: Informer<Published> = context.informers.informer(source);
    let controller = ROW
        .controller(&context.runtime)
        .watches(&namespaces, |change| [change.key().clone()])
        .watches(&published, |change| {
            [ObjectKey::cluster(change.key().namespace.clone())]
        });
    let config = context.config.clone();
    controller.run(Publisher {
        client: context.client(ROW.service_account),
        namespaces,
        published,
        config,
        metrics: SyncMetrics::new(&context.runtime, &SYNCS, &SYNC_DURATION),
    })
}

/// A fingerprint of what a ConfigMap publishes.
#[derive(Debug)]
pub(crate) struct Published(u64);

impl Projection for Published {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Data {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let data = machinery_client::json::from_slice::<Data>(json)?.data;
        Ok(Self(if data.len() == 1 {
            data.get(FIELD).map_or(0, |text| fnv(text.as_bytes()))
        } else {
            0
        }))
    }
}

struct Publisher {
    client: Client,
    namespaces: Informer<NamespaceView>,
    published: Informer<Published>,
    config: Arc<Config>,
    metrics: SyncMetrics,
}

impl Reconciler for Publisher {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(self.metrics.record(self.sync(key)))
    }
}

impl Publisher {
    async fn sync(&self, key: &ObjectKey) -> Result<Outcome, ReconcileError> {
        let staying = self
            .namespaces
            .get(key)
            .is_some_and(|own| !own.terminating && !own.header.is_deleting());
        if !staying {
            return Ok(Outcome::Done);
        }
        match self.publish(&key.name).await {
            Err(error) if error.is_already_exists() || error.is_not_found() => Ok(Outcome::Done),
            Err(error) if error.has_cause("NamespaceTerminating") => Ok(Outcome::Done),
            Err(error) => Err(ReconcileError::doing("publishing the root CA")(error)),
            Ok(()) => Ok(Outcome::Done),
        }
    }

    async fn publish(&self, namespace: &str) -> Result<(), ClientError> {
        let key = ObjectKey::new(namespace, NAME);
        let resource = ApiResource::of::<ConfigMap>();
        let data = json!({FIELD: self.config.root_ca});
        match self.published.get(&key) {
            Some(own) if own.0 == fnv(self.config.root_ca.as_bytes()) => Ok(()),
            Some(own) => {
                let mut edit = Edit::of(&resource, &own.json())?;
                edit.set("data", &data)?;
                self.client
                    .update(&resource, &key, "", edit.body())
                    .await
                    .map(drop)
            }
            None => {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {
                    "name": NAME, "namespace": namespace, "annotations": {DESCRIPTION_KEY: DESCRIPTION}}});
                self.client.create(&resource, namespace, &body).await.map(drop)
            }
        }
    }
}
