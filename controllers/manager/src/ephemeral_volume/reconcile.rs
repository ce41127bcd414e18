//! Carries out plans: claims are made one after the other, and the first that cannot be made ends it for now.

use super::plan::{self, Step};
use crate::views::PodView;
use crate::volume_binder::views::ClaimView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery_client::{ApiResource, Client, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler};
use machinery_runtime::metrics::Counter;
use serde_json::Value;

pub(super) struct Ephemeral {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) pods: Informer<PodView>,
    pub(super) claims: Informer<ClaimView>,
    pub(super) creations: Counter,
    pub(super) failures: Counter,
}

impl Reconciler for Ephemeral {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let known = self.pods.get(key);
            let Some(known) = known.filter(|pod| pod.has_ephemeral() && !pod.header.is_deleting()) else {
                return Ok(Outcome::Done);
            };
            let resource = ApiResource::of::<Pod>();
            let pod: Value = match self.client.get_as(&resource, key).await {
                Ok(pod) => pod,
                Err(error) if error.is_not_found() => return Ok(Outcome::Done),
                Err(error) => return Err(ReconcileError::doing("reading a pod")(error)),
            };
            if pod["metadata"]["uid"] != *known.uid().0 {
                return Ok(Outcome::Done);
            }
            let owner = |name: &str| {
                let claim = self.claims.get(&ObjectKey::new(&*key.namespace, name))?;
                let owner = claim.header.controller().map(|owner| owner.uid.0.to_string());
                Some(owner.unwrap_or_default())
            };
            let about = ObjectReference::new(&resource, key, &known.uid().0);
            for step in plan::of_pod(&pod, owner) {
                self.carry_out(step, key, &about).await?;
            }
            Ok(Outcome::Done)
        })
    }
}

impl Ephemeral {
    async fn carry_out(
        &self,
        step: Step,
        key: &ObjectKey,
        about: &ObjectReference,
    ) -> Result<(), ReconcileError> {
        let (volume, why) = match step {
            Step::Refuse { volume, why } => (volume, why),
            Step::Create { volume, claim } => {
                let resource = ApiResource::of::<PersistentVolumeClaim>();
                self.creations.inc();
                match self.client.create(&resource, &key.namespace, &claim).await {
                    Ok(_) => return Ok(()),
                    Err(error) => {
                        self.failures.inc();
                        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
                        (volume, format!("create PVC {name}: {error}"))
                    }
                }
            }
        };
        let why = format!("ephemeral volume {volume}: {why}");
        self.recorder.warning(about, "FailedBinding", why.as_str());
        Err(ReconcileError::Unusable(format!("pod {key}, {why}")))
    }
}
