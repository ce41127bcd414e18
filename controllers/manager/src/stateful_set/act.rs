//! Carries out a plan: phase after phase, one step at a time or in batches that grow.

use super::KIND;
use super::claims::{
    ClaimUser, claim, has_other_controller, has_volumes, is_owned_rightly, names, owner_references, volumes,
};
use super::identity::{POD_INDEX, POD_NAME, claim_name, ordinal_of, pod_name};
use super::plan::{Plan, PodRef, SetRef, Step, user};
use super::pods::template;
use super::reconcile::{Revision, StatefulSetReconciler};
use crate::pod_control::{member, slow_start};
use crate::views::template::OwnerReference;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, ClientError, Edit};
use machinery_meta::ObjectKey;
use machinery_reconcile::{ObjectReference, ReconcileError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Action that fails where the server refuses a changed pod.
const UPDATING: &str = "updating a pod";

/// A set, its templates, and the object of its events.
pub(super) struct Act<'a> {
    pub(super) control: &'a StatefulSetReconciler,
    pub(super) set: &'a SetRef,
    pub(super) about: &'a ObjectReference,
    pub(super) current: &'a Revision,
    pub(super) update: &'a Revision,
    pub(super) claim_templates: &'a [Value],
    pub(super) match_labels: &'a BTreeMap<String, String>,
}

impl Act<'_> {
    /// Acts until something fails; returns how many pods were deleted to be updated.
    pub(super) async fn run(&self, plan: &Plan) -> (usize, Result<(), ReconcileError>) {
        let done = async {
            self.phase(plan.replicas.clone(), |step| self.step(step)).await?;
            self.phase(plan.condemned_claims.clone(), |pod| self.own_claims(pod))
                .await?;
            self.phase(plan.condemned.clone(), |pod| self.delete(pod)).await
        };
        if let Err(error) = done.await {
            return (0, Err(error));
        }
        for (deleted, pod) in plan.update.iter().enumerate() {
            if let Err(error) = self.delete(pod.clone()).await {
                return (deleted, Err(error));
            }
        }
        (plan.update.len(), Ok(()))
    }

    async fn phase<T, F>(&self, items: Vec<T>, act: impl Fn(T) -> F) -> Result<(), ReconcileError>
    where
        F: Future<Output = Result<(), ReconcileError>>,
    {
        if self.set.parallel {
            return slow_start(items, act).await.1.map_or(Ok(()), Err);
        }
        for item in items {
            act(item).await?;
        }
        Ok(())
    }

    async fn step(&self, step: Step) -> Result<(), ReconcileError> {
        match step {
            Step::Create { ordinal, current } => {
                let revision = if current { self.current } else { self.update };
                self.create(ordinal, revision).await
            }
            Step::FillClaims(pod) => self.fill_claims(&pod).await,
            Step::Repair(pod) => {
                let done = self.repair(&pod).await;
                self.record("Update", pod.name(), done.as_ref().err());
                done
            }
            Step::Delete(pod) => self.delete(pod).await,
        }
    }

    /// Makes the claims of a pod, then the pod.
    async fn create(&self, ordinal: i32, revision: &Revision) -> Result<(), ReconcileError> {
        let name = pod_name(self.set.name(), ordinal.into());
        if let Err(error) = self.create_claims(ordinal, &name).await {
            self.record("Create", &name, Some(&error));
            return Err(error);
        }
        let unreadable = |source| ClientError::Decode {
            what: "the pod template".to_owned(),
            source,
        };
        let template = template(
            self.set,
            &revision.template,
            &revision.name,
            self.claim_templates,
            ordinal,
        )
        .map_err(unreadable)?;
        let owner = OwnerReference::controller("apps/v1", KIND, &self.set.header);
        let prefix = format!("{}-", self.set.name());
        let pod = template.pod(self.set.namespace(), &name, &prefix, owner);
        let key = ObjectKey::new(self.set.namespace(), &name);
        let created = self
            .control
            .pod_control
            .create(&self.control.expectations, self.about, key, &pod)
            .await;
        match created {
            // A namespace that is going takes no pods; the set goes with it.
            Err(error) if error.has_cause("NamespaceTerminating") => Ok(()),
            other => other.map_err(ReconcileError::doing("creating a pod")),
        }
    }

    /// Makes the claims that are missing, all that can be made; one that is going holds the pod up until it is gone.
    async fn create_claims(&self, ordinal: i32, pod: &str) -> Result<(), ReconcileError> {
        let mut failed = Vec::new();
        for (template, short) in self.claim_templates.iter().zip(names(self.claim_templates)) {
            let name = claim_name(short, self.set.name(), ordinal.into());
            if let Err(error) = self.create_claim(template, &name, (ordinal, pod)).await {
                failed.push(error);
            }
        }
        match failed.len() {
            0 | 1 => failed.pop().map_or(Ok(()), Err),
            _ => {
                let all: Vec<String> = failed.iter().map(ReconcileError::chain).collect();
                Err(ReconcileError::Unusable(format!("[{}]", all.join(", "))))
            }
        }
    }

    async fn create_claim(
        &self,
        template: &Value,
        name: &str,
        (ordinal, pod): (i32, &str),
    ) -> Result<(), ReconcileError> {
        let key = ObjectKey::new(self.set.namespace(), name);
        if let Some(there) = self.control.claims.get(&key) {
            return match there.header.is_deleting() {
                true => Err(ReconcileError::Unusable(format!("pvc {name} is being deleted"))),
                false => Ok(()),
            };
        }
        let claim = claim(self.set, template, name, self.match_labels, ordinal);
        let resource = ApiResource::of::<PersistentVolumeClaim>();
        let created = self
            .control
            .client
            .create(&resource, &key.namespace, &claim)
            .await;
        match created {
            Ok(_) => self.record_claim(name, pod, None),
            // Made earlier, and not seen yet.
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                self.record_claim(name, pod, Some(&error));
                let doing = format!("failed to create PVC {name}");
                return Err(ReconcileError::doing(doing)(error));
            }
        }
        Ok(())
    }

    async fn fill_claims(&self, pod: &PodRef) -> Result<(), ReconcileError> {
        let Some(ordinal) = ordinal_of(self.set.name(), pod.name()) else {
            return Ok(());
        };
        self.create_claims(ordinal, pod.name()).await?;
        let owned = self.own_claims(pod.clone()).await;
        if let Err(error) = &owned {
            self.record("Update", pod.name(), Some(error));
        }
        owned
    }

    /// Puts the owners of a pod's claims right. The cache may be old: the live claim decides.
    async fn own_claims(&self, pod: PodRef) -> Result<(), ReconcileError> {
        let Some(ordinal) = ordinal_of(self.set.name(), pod.name()) else {
            return Ok(());
        };
        for short in names(self.claim_templates) {
            let name = claim_name(short, self.set.name(), ordinal.into());
            let key = ObjectKey::new(self.set.namespace(), &name);
            let Some(claim) = self.control.claims.get(&key) else {
                continue;
            };
            let user = user(ordinal, &pod);
            if has_other_controller(&claim.header.owners, self.set, user) {
                // Spelled as upstream spells it.
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
                );
                self.control
                    .pod_control
                    .recorder()
                    .warning(self.about, "ConflictingController", message);
            }
            if !is_owned_rightly(self.set, user, &claim.header.owners) {
                let doing = format!("could not update claim {name} for delete policy ownerRefs");
                self.own_claim(&key, user)
                    .await
                    .map_err(ReconcileError::doing(doing))?;
            }
        }
        Ok(())
    }

    async fn own_claim(&self, key: &ObjectKey, pod: ClaimUser<'_>) -> Result<(), ClientError> {
        let resource = ApiResource::of::<PersistentVolumeClaim>();
        let live = match self.control.client.get(&resource, key).await {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let unreadable = |source| ClientError::Decode {
            what: key.to_string(),
            source,
        };
        let (header, _) = parse_header(&live).map_err(unreadable)?;
        if is_owned_rightly(self.set, pod, &header.owners) {
            return Ok(());
        }
        let written: Written = serde_json::from_slice(&live).map_err(unreadable)?;
        let owners = owner_references(self.set, pod, &header, &written.metadata.owner_references);
        let mut edit = Edit::of(&resource, &live)?;
        edit.set_in("metadata", "ownerReferences", &owners)?;
        self.control
            .client
            .update(&resource, key, "", edit.body())
            .await
            .map(drop)
    }

    /// Labels and volumes of a pod that was adopted or changed; volumes of a pod cannot change, which the event says.
    async fn repair(&self, pod: &PodRef) -> Result<(), ReconcileError> {
        let Some(ordinal) = ordinal_of(self.set.name(), pod.name()) else {
            return Ok(());
        };
        self.create_claims(ordinal, pod.name()).await?;
        self.own_claims(pod.clone()).await?;
        let resource = ApiResource::of::<Pod>();
        let live = match self.control.client.get(&resource, pod.key()).await {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        let unreadable = |source| ClientError::Decode {
            what: pod.key().to_string(),
            source,
        };
        let mut body: Value = serde_json::from_slice(&live).map_err(unreadable)?;
        let before = body.clone();
        body["metadata"]["labels"][POD_NAME] = json!(pod.name());
        body["metadata"]["labels"][POD_INDEX] = json!(ordinal.to_string());
        if !self.claim_templates.is_empty() {
            let own = body["spec"]["volumes"].as_array().cloned().unwrap_or_default();
            let wanted = volumes(self.set.name(), self.claim_templates, ordinal, &own);
            if !has_volumes(&own, &wanted) {
                body["spec"]["volumes"] = json!(wanted);
            }
        }
        if body == before {
            return Ok(());
        }
        self.control
            .client
            .update(&resource, pod.key(), "", &body)
            .await
            .map(drop)
            .map_err(ReconcileError::doing(UPDATING))
    }

    async fn delete(&self, pod: PodRef) -> Result<(), ReconcileError> {
        self.control
            .pod_control
            .delete(&self.control.expectations, self.about, &pod)
            .await
            .map_err(ReconcileError::doing("deleting a pod"))
    }

    fn record(&self, verb: &str, pod: &str, error: Option<&ReconcileError>) {
        let recorder = self.control.pod_control.recorder();
        match error {
            None => {
                let message = member(self.about, verb, pod, None);
                recorder.normal(self.about, &format!("Successful{verb}"), message);
            }
            Some(error) => {
                let message = member(self.about, verb, pod, Some(&message_of(error)));
                recorder.warning(self.about, &format!("Failed{verb}"), message);
            }
        }
    }

    fn record_claim(&self, claim: &str, pod: &str, error: Option<&ClientError>) {
        let (recorder, set) = (self.control.pod_control.recorder(), self.set.name());
        match error {
            None => {
                let message = format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success");
                recorder.normal(self.about, "SuccessfulCreate", message);
            }
            Some(error) => {
                let message =
                    format!("Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}");
                recorder.warning(self.about, "FailedCreate", message);
            }
        }
    }
}

/// The error as upstream's event has it: with its causes, and the server's words alone where the pod itself was refused.
fn message_of(error: &ReconcileError) -> String {
    match error {
        ReconcileError::Request { doing, source } if doing == UPDATING => source.to_string(),
        other => other.chain(),
    }
}

#[derive(Deserialize)]
struct Written {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    owner_references: Vec<Value>,
}
