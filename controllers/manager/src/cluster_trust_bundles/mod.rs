//! Publishes the authorities of the API server's serving certificate as the ClusterTrustBundle of the signer
//! `kubernetes.io/kube-apiserver-serving` (upstream's `clustertrustbundlepublisher`). Other bundles of that signer are deleted.
//!
//! Watches: ClusterTrustBundles. There is one thing to do whatever happens: the key is the published bundle's name.

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::metrics::SyncMetrics;
use crate::views::template::fnv;
use futures::future::BoxFuture;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Edit, Informer, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::metrics::Family;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::json;
use std::borrow::Cow;

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    queue: "ca_cert_publisher_cluster_trust_bundles",
    service_account: "kube-apiserver-serving-clustertrustbundle-publisher",
    default: true,
    start,
};

const SYNCS: Family = Family::new(
    "clustertrustbundle_publisher_sync_total",
    "[ALPHA] Number of syncs that occurred in cluster trust bundle publisher.",
    &["code"],
);
const SYNC_DURATION: Family = Family::new(
    "clustertrustbundle_publisher_sync_duration_seconds",
    "[ALPHA] The time it took to sync a cluster trust bundle.",
    &["code"],
)
.exponential(0.001, 2.0, 15);

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let bundle = context.config.root_ca.clone();
    if bundle.is_empty() {
        tracing::info!("no trust bundle is published: there is no authority");
        return Box::pin(std::future::pending());
    }
    let name = name_of(&bundle);
    let bundles: Informer<BundleView> = context.informers.of::<ClusterTrustBundle, _>();
    let own = name.clone();
    let controller = ROW.controller(&context.runtime).watches(&bundles, move |change| {
        let is_ours = change.sides().any(|own| own.projection.is_ours);
        is_ours.then(|| ObjectKey::cluster(own.clone()))
    });
    // Once at the beginning, when nothing is there that could change.
    controller.queue().add(ObjectKey::cluster(name));
    controller.run(Publisher {
        client: context.client(ROW.service_account),
        bundles,
        bundle,
        metrics: SyncMetrics::new(&context.runtime, &SYNCS, &SYNC_DURATION),
    })
}

/// The name that upstream gives to a bundle: its signer's, and the beginning of its hash.
fn name_of(bundle: &str) -> String {
    let hash = digest(&SHA256, bundle.as_bytes());
    let hash: String = hash.as_ref()[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}:{hash}", SIGNER.replace('/', ":"))
}

/// A bundle, as far as it is compared.
#[derive(Debug)]
pub(crate) struct BundleView {
    is_ours: bool,
    content: u64,
}

#[derive(Deserialize)]
struct Bundle<'a> {
    #[serde(default, borrow)]
    spec: Spec<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    signer_name: Cow<'a, str>,
    #[serde(borrow)]
    trust_bundle: Cow<'a, str>,
}

impl Projection for BundleView {
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Bundle { spec } = machinery_client::json::from_slice(json)?;
        Ok(Self {
            is_ours: spec.signer_name == SIGNER,
            content: fnv(spec.trust_bundle.as_bytes()),
        })
    }
}

struct Publisher {
    client: Client,
    bundles: Informer<BundleView>,
    bundle: String,
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
        match self.publish(key).await {
            Err(error) if error.is_already_exists() || error.is_conflict() || error.is_not_found() => {}
            other => other.map_err(ReconcileError::doing("publishing the trust bundle"))?,
        }
        self.delete_others(key)
            .await
            .map_err(ReconcileError::doing("deleting an old trust bundle"))?;
        Ok(Outcome::Done)
    }

    async fn publish(&self, key: &ObjectKey) -> Result<(), ClientError> {
        let resource = ApiResource::of::<ClusterTrustBundle>();
        let spec = json!({"signerName": SIGNER, "trustBundle": self.bundle});
        match self.bundles.get(key) {
            Some(own) if own.content == fnv(self.bundle.as_bytes()) => Ok(()),
            Some(own) => {
                let mut edit = Edit::of(&resource, &own.json())?;
                edit.set("spec", &spec)?;
                self.client
                    .update(&resource, key, "", edit.body())
                    .await
                    .map(drop)
            }
            None => {
                let body = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind,
                    "metadata": {"name": key.name}, "spec": spec});
                self.client.create(&resource, "", &body).await.map(drop)
            }
        }
    }

    async fn delete_others(&self, key: &ObjectKey) -> Result<(), ClientError> {
        let resource = ApiResource::of::<ClusterTrustBundle>();
        for other in self.bundles.list() {
            if !other.is_ours || other.key() == key || other.header.is_deleting() {
                continue;
            }
            let deleted = self
                .client
                .delete(&resource, other.key(), &DeleteOptions::default())
                .await;
            match deleted {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `sha256sum` of the bundle says it.
    #[test]
    fn bundle_is_named_after_signer_and_hash() {
        assert_eq!(
            name_of("abc"),
            "kubernetes.io:kube-apiserver-serving:ba7816bf8f01cfea414140de"
        );
    }
}
