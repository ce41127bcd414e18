//! Carries out plans.

use super::is_done;
use super::metrics::ClaimMetrics;
use super::new_claim::{new_claim, prefix};
use super::plan::{
    ClaimRef, FINALIZER, Noted, Owned, PodStep, Verdict, by_pod_claim, is_to_be_reserved, judge, of_claim,
    of_pod,
};
use super::view::{Consumer, DeviceClaimView, TemplateView};
use crate::pod_control::reference;
use crate::views::device_claims::{DeviceClaim, DeviceClaims};
use crate::views::{DeviceClaimSource, MadeClaim, PodView};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, DeleteOptions, Edit, Informer, Object, Patch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{
    EventRecorder, Expectations, Outcome, QueueKey, ReconcileError, Reconciler, names,
};
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Field manager of pods' statuses.
const MANAGER: &str = "ResourceClaimController";
/// Claims that one look makes or notes. Where they cannot be noted, no more are made.
const CLAIMS_PER_LOOK: usize = 512;

/// Keys to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Pod(ObjectKey),
    Claim(ObjectKey),
}

impl QueueKey for Key {
    fn namespace(&self) -> &str {
        match self {
            Self::Pod(key) | Self::Claim(key) => &key.namespace,
        }
    }
}

pub(super) struct ClaimReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) pods: Informer<PodView>,
    pub(super) claims: Informer<DeviceClaimView>,
    pub(super) templates: Informer<TemplateView>,
    pub(super) metrics: ClaimMetrics,
    /// Claims made for a pod and not seen yet.
    pub(super) expectations: Expectations<ObjectKey>,
}

type PodRef = Arc<Object<PodView>>;

impl Reconciler for ClaimReconciler {
    type Key = Key;

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match key {
                Key::Pod(key) => self.pod(key).await?,
                Key::Claim(key) => self.claim(key).await?,
            }
            Ok(Outcome::Done)
        })
    }
}

impl ClaimReconciler {
    async fn pod(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        // One that is done needs none; upstream recreates its claim, and deletes it again.
        let known = self.pods.get(key);
        let known = known.filter(|pod| !pod.header.is_deleting() && !is_done(pod));
        let Some((pod, own)) = known.and_then(|pod| Some((pod.clone(), pod.device_claims.clone()?))) else {
            self.expectations.forget(key);
            return Ok(());
        };
        if own.is_grouped {
            // As upstream's where its gate is off: nothing is tried again.
            tracing::debug!(pod = %key, "claims of a pod in a PodGroup are left alone");
            return Ok(());
        }
        if !self.has_seen_its_own_doing(key).await? {
            // What is missing will wake us.
            return Ok(());
        }
        let owned = by_pod_claim(self.claims.controlled(pod.namespace(), pod.uid()));
        let mut made = BTreeMap::new();
        for claim in &own.claims {
            if made.len() >= CLAIMS_PER_LOOK {
                // Once these are noted, the pod's event begins the next look.
                break;
            }
            match self.of_pod(&pod, claim, &owned).await {
                Ok(None) => {}
                Ok(Some(name)) => drop(made.insert(claim.name().to_owned(), name)),
                Err(why) => {
                    let about = reference(&ApiResource::of::<Pod>(), &pod.header);
                    let message = format!("PodResourceClaim {}: {why}", claim.name());
                    self.recorder
                        .warning(&about, "FailedResourceClaimCreation", message.as_str());
                    return Err(ReconcileError::Unusable(format!("pod {key}, {message}")));
                }
            }
        }
        if !made.is_empty() {
            self.note(&pod, &own, made).await?;
        }
        // While it has no node, the scheduler reserves.
        if pod.node.is_empty() {
            return Ok(());
        }
        self.reserve(&pod, &own).await
    }

    /// Reports whether the cache shows every claim that was created; claims whose answer was lost are read from the server.
    async fn has_seen_its_own_doing(&self, key: &ObjectKey) -> Result<bool, ReconcileError> {
        let awaited = self.expectations.settle(key, &self.claims);
        for claim in &awaited.unacknowledged {
            match self.client.get(&ApiResource::of::<ResourceClaim>(), claim).await {
                Ok(live) => {
                    let at = parse_header(&live).map(|(_, at)| at).unwrap_or_default();
                    self.expectations.created(key, claim, at);
                }
                Err(error) if error.is_not_found() => self.expectations.not_created(key, claim),
                Err(error) => return Err(ReconcileError::doing("reading a claim")(error)),
            }
        }
        Ok(awaited.is_settled() || self.expectations.settle(key, &self.claims).is_settled())
    }

    /// The claim that is to be noted for one of a pod's claims, made where there is none; or why it cannot be.
    async fn of_pod(
        &self,
        pod: &PodRef,
        claim: &DeviceClaim,
        owned: &Owned,
    ) -> Result<Option<String>, String> {
        let known = claim
            .claim()
            .and_then(|name| self.claims.get(&ObjectKey::new(pod.namespace(), name)));
        let uid = known.as_ref().map(owner_of);
        let noted = uid.as_deref().map_or(Noted::Unknown, Noted::OwnedBy);
        let mut step = of_pod(pod, claim, noted, owned);
        if let PodStep::Ask(name) = &step {
            let key = ObjectKey::new(pod.namespace(), &**name);
            let live = self
                .client
                .get_as::<Value>(&ApiResource::of::<ResourceClaim>(), &key)
                .await;
            let owner = match live {
                Ok(live) => Some(controller_of(&live)),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(format!("checking claim existence: {error}")),
            };
            let noted = owner.as_deref().map_or(Noted::Gone, Noted::OwnedBy);
            step = of_pod(pod, claim, noted, owned);
        }
        match step {
            PodStep::Nothing | PodStep::Ask(_) => Ok(None),
            PodStep::Note(name) => Ok(Some(name)),
            PodStep::Create(template) => self.create(pod, claim, &template).await.map(Some),
            PodStep::Unsupported => Err(format!(
                "checking for claim before creating it: pod \"{}\", spec.resourceClaim {:?}: none of the supported fields \
                 are set",
                pod.key(),
                claim.name()
            )),
        }
    }

    async fn create(&self, pod: &PodRef, claim: &DeviceClaim, template: &str) -> Result<String, String> {
        let known = self.templates.get(&ObjectKey::new(pod.namespace(), template));
        // As upstream's lister says it.
        let known = known.ok_or_else(|| {
            format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            )
        })?;
        let template: Value = known.decode().map_err(|error| error.to_string())?;
        let prefix = prefix(pod.name(), claim.name());
        let name = ObjectKey::new(pod.namespace(), names::generate(&self.runtime, &prefix));
        let body = new_claim(&pod.header, claim.name(), &template, (&name.name, &prefix));
        let requests = body["spec"]["devices"]["requests"].as_array();
        let mut requests = requests.into_iter().flatten();
        let has_admin_access = requests.any(|own| own["exactly"]["adminAccess"] == true);
        self.expectations.creating(pod.key(), name.clone());
        let resource = ApiResource::of::<ResourceClaim>();
        let created = self.client.create(&resource, &name.namespace, &body).await;
        self.metrics.created(created.is_ok(), has_admin_access);
        match created {
            Ok(answer) => {
                let at = parse_header(&answer).map(|(_, at)| at).unwrap_or_default();
                self.expectations.created(pod.key(), &name, at);
                Ok(name.name.to_string())
            }
            Err(error) => {
                // A refusal made nothing; of a lost answer the next look asks.
                if error.code() > 0 {
                    self.expectations.not_created(pod.key(), &name);
                }
                Err(format!("create ResourceClaim : {error}"))
            }
        }
    }

    /// Writes the names of all claims that were made for a pod into its status.
    async fn note(
        &self,
        pod: &PodRef,
        own: &DeviceClaims,
        made: BTreeMap<String, String>,
    ) -> Result<(), ReconcileError> {
        let known = own.claims.iter().filter_map(|claim| match claim.source() {
            DeviceClaimSource::Template(_, MadeClaim::Named(name)) => {
                Some((claim.name().to_owned(), name.to_owned()))
            }
            _ => None,
        });
        let mut all: BTreeMap<String, String> = known.collect();
        all.extend(made);
        let statuses: Vec<Value> = all
            .iter()
            .map(|(name, claim)| json!({"name": name, "resourceClaimName": claim}))
            .collect();
        let body = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid().0},
            "status": {"resourceClaimStatuses": statuses}});
        let patch = Patch::Apply {
            manager: MANAGER.to_owned(),
            force: true,
        };
        let resource = ApiResource::of::<Pod>();
        let written = self
            .client
            .patch(&resource, pod.key(), "status", &patch, &body)
            .await;
        match written {
            Err(error) if !error.is_not_found() => {
                Err(ReconcileError::doing("noting claims in a pod's status")(error))
            }
            _ => Ok(()),
        }
    }

    /// Reserves allocated claims for a pod that was given its node past the scheduler.
    async fn reserve(&self, pod: &PodRef, own: &DeviceClaims) -> Result<(), ReconcileError> {
        for claim in &own.claims {
            let Some(name) = claim.claim() else { continue };
            let Some(known) = self.claims.get(&ObjectKey::new(pod.namespace(), name)) else {
                return Ok(());
            };
            if claim.template().is_some() && owner_of(&known) != pod.uid().0 {
                let why = format!(
                    "ResourceClaim {} was not created for Pod {} (Pod is not owner)",
                    known.key(),
                    pod.key()
                );
                return Err(ReconcileError::Unusable(why));
            }
            if !is_to_be_reserved(pod, &known) {
                continue;
            }
            let mut body: Value = known.decode()?;
            let consumer = json!({"resource": "pods", "name": pod.name(), "uid": pod.uid().0});
            match body["status"]["reservedFor"].as_array_mut() {
                Some(all) => all.push(consumer),
                None => body["status"]["reservedFor"] = json!([consumer]),
            }
            self.write(&known, "status", &body["status"]).await?;
        }
        Ok(())
    }

    async fn claim(&self, key: &ObjectKey) -> Result<(), ReconcileError> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(());
        };
        let mut stays = Vec::with_capacity(claim.reserved_for.len());
        for consumer in &claim.reserved_for {
            stays.push(self.stays(&key.namespace, consumer).await?);
        }
        let owner = claim.header.controller().filter(|own| &*own.kind == "Pod");
        let owner = owner.and_then(|own| self.pods.get(&ObjectKey::new(&*key.namespace, &*own.name)));
        let body: Value = claim.decode()?;
        let plan = of_claim(&claim, &body, &stays, owner.as_deref());
        let mut latest = None;
        if let Some(status) = &plan.status {
            latest = self.write(&claim, "status", status).await?;
        }
        if plan.remove_finalizer {
            self.remove_finalizer(&claim, latest).await?;
        }
        if plan.delete {
            let options = DeleteOptions::uid(claim.uid());
            let resource = ApiResource::of::<ResourceClaim>();
            match self.client.delete(&resource, key, &options).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => {
                    return Err(ReconcileError::doing("deleting an unused claim")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports whether a claim stays reserved. A pod that no cache has may be one that the scheduler is about to place.
    async fn stays(&self, namespace: &str, consumer: &Consumer) -> Result<bool, ReconcileError> {
        let key = ObjectKey::new(namespace, &*consumer.name);
        let known = self.pods.get(&key);
        match judge(consumer, known.as_deref()) {
            Verdict::Stays => return Ok(true),
            Verdict::Goes => return Ok(false),
            Verdict::Ask => {}
        }
        match self.client.get(&ApiResource::of::<Pod>(), &key).await {
            Ok(live) => Ok(parse_header(&live).is_ok_and(|(header, _)| *header.uid.0 == *consumer.uid)),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(ReconcileError::doing("reading a claim's consumer")(error)),
        }
    }

    /// Writes a part of a claim as it was decided on; the answer, or nothing where the claim has gone.
    async fn write(
        &self,
        claim: &Object<DeviceClaimView>,
        part: &str,
        value: &Value,
    ) -> Result<Option<Value>, ReconcileError> {
        let resource = ApiResource::of::<ResourceClaim>();
        let mut edit = Edit::of(&resource, &claim.json())?;
        edit.set(part, value)?;
        match self
            .client
            .update(&resource, claim.key(), part, edit.body())
            .await
        {
            Ok(answer) => Ok(serde_json::from_slice(&answer).ok()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(ReconcileError::doing("writing a claim's status")(error)),
        }
    }

    async fn remove_finalizer(
        &self,
        claim: &Object<DeviceClaimView>,
        latest: Option<Value>,
    ) -> Result<(), ReconcileError> {
        let mut body = match latest {
            Some(latest) => latest,
            None => claim.decode()?,
        };
        if let Some(finalizers) = body["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|own| own != FINALIZER);
        }
        let resource = ApiResource::of::<ResourceClaim>();
        body["apiVersion"] = json!(resource.api_version());
        body["kind"] = json!(resource.kind);
        match self.client.update(&resource, claim.key(), "", &body).await {
            Err(error) if !error.is_not_found() => {
                Err(ReconcileError::doing("removing a claim's finalizer")(error))
            }
            _ => Ok(()),
        }
    }
}

/// The uid of a claim's controller, empty where it has none.
fn owner_of(claim: &ClaimRef) -> String {
    let owner = claim.header.controller();
    owner.map(|own| own.uid.0.to_string()).unwrap_or_default()
}

fn controller_of(claim: &Value) -> String {
    let owners = claim["metadata"]["ownerReferences"].as_array();
    let mut owners = owners
        .into_iter()
        .flatten()
        .filter(|own| own["controller"] == true);
    let uid = owners.next().and_then(|own| own["uid"].as_str());
    uid.unwrap_or_default().to_owned()
}
