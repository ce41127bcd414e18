//! Carries out plans: each write follows on the one before.

use super::matching::VolumeRef;
use super::plan::{self, ClaimRefObject, Cluster, Part, Step};
use super::views::{ClaimView, ClassView, VolumeView};
use crate::views::PodView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, IndexName, Informer, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler, WorkQueue};
use machinery_runtime::metrics::Reading;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::Arc;

/// Claims have a namespace in their key, volumes have none.
pub(super) struct Binder {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) _readings: [Reading; 5],
    pub(super) stores: Stores,
}

/// Stores that plans read.
pub(super) struct Stores {
    pub(super) volumes: Informer<VolumeView>,
    pub(super) claims: Informer<ClaimView>,
    pub(super) classes: Informer<ClassView>,
    pub(super) pods: Informer<PodView>,
}

impl Cluster for Stores {
    fn volume(&self, name: &str) -> Option<VolumeRef> {
        self.volumes.get(&ObjectKey::cluster(name))
    }

    fn claim(&self, namespace: &str, name: &str) -> Option<ClaimRefObject> {
        self.claims.get(&ObjectKey::new(namespace, name))
    }

    fn candidates(&self, claim: &Object<ClaimView>) -> Vec<VolumeRef> {
        let of_claim = VolumeView::of_claim(claim.namespace(), claim.name());
        let mut found = self.volumes.by_index(VolumeView::CANDIDATES, &of_claim);
        let of_class = VolumeView::of_class(claim.class());
        found.extend(self.volumes.by_index(VolumeView::CANDIDATES, &of_class));
        found
    }

    fn class(&self, name: &str) -> Option<Arc<Object<ClassView>>> {
        self.classes.get(&ObjectKey::cluster(name))
    }

    fn default_class(&self) -> Option<Box<str>> {
        let classes = self.classes.list();
        let defaults = classes.iter().filter(|class| class.is_default);
        let newest = defaults.min_by_key(|class| {
            let created = crate::views::created(&class.header);
            (Reverse(created), class.key().clone())
        });
        newest.map(|class| class.name().into())
    }

    fn waiting_pods(&self, claim: &Object<ClaimView>) -> Vec<String> {
        let pods = self.pods.by_index(IndexName::NAMESPACE, claim.namespace());
        let waiting = pods.iter().filter(|pod| {
            pod.node.is_empty()
                && !pod.is_terminal()
                && pod.claims.iter().any(|own| *own.name == *claim.name())
        });
        waiting.map(|pod| pod.name().to_owned()).collect()
    }
}

/// The newest versions of the volume and the claim of a plan.
#[derive(Default)]
struct Versions {
    volume: Option<String>,
    claim: Option<String>,
}

impl Reconciler for Binder {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let (steps, about, claim) = if key.namespace.is_empty() {
                let Some(volume) = self.stores.volumes.get(key) else {
                    return Ok(Outcome::Done);
                };
                let resource = ApiResource::of::<PersistentVolume>();
                let about = ObjectReference::new(&resource, key, &volume.uid().0);
                let claim = volume.claim.as_ref();
                let claim = claim.map(|own| ObjectKey::new(&*own.namespace, &*own.name));
                (plan::of_volume(&self.stores, &volume), about, claim)
            } else {
                let Some(claim) = self.stores.claims.get(key) else {
                    return Ok(Outcome::Done);
                };
                let resource = ApiResource::of::<PersistentVolumeClaim>();
                let about = ObjectReference::new(&resource, key, &claim.uid().0);
                (plan::of_claim(&self.stores, &claim), about, Some(key.clone()))
            };
            self.carry_out(steps, &about, claim).await
        })
    }
}

impl Binder {
    async fn carry_out(
        &self,
        steps: Vec<Step>,
        about: &ObjectReference,
        claim: Option<ObjectKey>,
    ) -> Result<Outcome, ReconcileError> {
        let mut versions = Versions::default();
        for step in steps {
            match step {
                Step::Write(part, body) => self.write(part, body, &mut versions).await?,
                Step::Event {
                    warning: true,
                    reason,
                    message,
                } => self.recorder.warning(about, reason, message),
                Step::Event { reason, message, .. } => self.recorder.normal(about, reason, message),
                Step::WarnClaim { uid, reason, message } => {
                    let resource = ApiResource::of::<PersistentVolumeClaim>();
                    if let Some(claim) = &claim {
                        let about = ObjectReference::new(&resource, claim, &uid);
                        self.recorder.warning(&about, reason, message.as_str());
                    }
                }
                Step::WakeClaim => claim.iter().for_each(|claim| self.queue.add(claim.clone())),
                Step::Fail(message) => return Err(ReconcileError::Unusable(message)),
            }
        }
        Ok(Outcome::Done)
    }

    async fn write(
        &self,
        part: Part,
        mut body: Value,
        versions: &mut Versions,
    ) -> Result<(), ReconcileError> {
        let (resource, last) = match part {
            Part::Volume | Part::VolumeStatus => {
                (ApiResource::of::<PersistentVolume>(), &mut versions.volume)
            }
            Part::Claim | Part::ClaimStatus => {
                (ApiResource::of::<PersistentVolumeClaim>(), &mut versions.claim)
            }
        };
        let subresource = match part {
            Part::Volume | Part::Claim => "",
            Part::VolumeStatus | Part::ClaimStatus => "status",
        };
        body["apiVersion"] = json!(resource.api_version());
        body["kind"] = json!(&*resource.kind);
        if let Some(last) = last.as_ref() {
            body["metadata"]["resourceVersion"] = json!(last);
        }
        let member = |name: &str| body["metadata"][name].as_str().unwrap_or_default();
        let key = ObjectKey::new(member("namespace"), member("name"));
        let doing = format!("writing {} {key}", resource.kind);
        let written = self.client.update(&resource, &key, subresource, &body).await;
        let written = written.map_err(ReconcileError::doing(doing))?;
        let (_, revision) = parse_header(&written).map_err(|source| ClientError::Decode {
            what: key.to_string(),
            source,
        })?;
        *last = Some(revision.to_string());
        Ok(())
    }
}
