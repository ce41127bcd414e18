//! Gather, claim, plan, act, write status. No rule of its own.

use super::ROW;
use super::plan::{Plan, plan};
use super::revisions::{self, REVISION};
use super::rolling::counts_are_of_its_size;
use super::sets::{DeploymentRef, Scale, SetRef};
use super::snapshot::Snapshot;
use super::status::{Progress, deadline, status};
use crate::heavy;
use crate::pod_control::{patch_owners, reference, still_staying};
use crate::views::template::{OwnerReference, POD_TEMPLATE_HASH, TemplateMeta};
use crate::views::{DeploymentView, PodView, ReplicaSetView};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Edit, Informer, Patch};
use machinery_meta::{ObjectKey, TextMap};
use machinery_reconcile::{
    EventRecorder, Expectations, ObjectReference, Outcome, ReconcileError, Reconciler, WriteTracker,
};
use machinery_runtime::Runtime;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

pub(super) struct DeploymentReconciler {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) deployments: Informer<DeploymentView>,
    pub(super) sets: Informer<ReplicaSetView>,
    pub(super) pods: Informer<PodView>,
    /// Sets made and changed and not seen yet: sizes decided without them would break the bounds.
    pub(super) expectations: Expectations<ObjectKey>,
    pub(super) own_writes: WriteTracker,
}

impl Reconciler for DeploymentReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(deployment) = self.deployments.get(key) else {
                self.expectations.forget(key);
                self.own_writes.forget(key);
                return Ok(Outcome::Done);
            };
            if self.own_writes.cache_is_stale(&deployment) || !self.has_seen_its_own_doing(key).await? {
                // What is missing will wake us.
                return Ok(Outcome::Done);
            }
            let about = reference(&ApiResource::of::<Deployment>(), &deployment.header);
            if deployment.selects_everything {
                self.recorder.warning(
                    &about,
                    "SelectingAll",
                    "This deployment is selecting all pods. A non-empty selector is required.",
                );
                return Ok(Outcome::Done);
            }
            let snapshot = self.snapshot(&deployment).await?;
            if deployment.header.is_deleting() {
                return self.write_status(&snapshot, &Progress::None, false).await;
            }
            self.round(&snapshot, &about).await
        })
    }
}

impl DeploymentReconciler {
    /// Reports whether the cache shows every set that was made or changed; sets of lost answers are read from the
    /// server.
    async fn has_seen_its_own_doing(&self, key: &ObjectKey) -> Result<bool, ReconcileError> {
        let awaited = self.expectations.settle(key, &self.sets);
        for set in awaited.unacknowledged.iter().chain(&awaited.doubtful) {
            match self.client.get(&ApiResource::of::<ReplicaSet>(), set).await {
                Ok(live) => self.done(key, set, &live),
                Err(error) if error.is_not_found() => self.not_done(key, set),
                Err(error) => return Err(ReconcileError::doing("reading a replica set")(error)),
            }
        }
        Ok(awaited.is_settled() || self.expectations.settle(key, &self.sets).is_settled())
    }

    /// A set is as this answer shows it.
    fn done(&self, key: &ObjectKey, set: &ObjectKey, live: &[u8]) {
        let revision = parse_header(live)
            .map(|(_, revision)| revision)
            .unwrap_or_default();
        self.expectations.created(key, set, revision);
        self.expectations.changed(key, set, revision);
    }

    fn not_done(&self, key: &ObjectKey, set: &ObjectKey) {
        self.expectations.not_created(key, set);
        self.expectations.not_changed(key, set);
    }

    async fn snapshot(&self, deployment: &DeploymentRef) -> Result<Snapshot, ReconcileError> {
        let sets = self.claim(deployment).await?;
        let mut snapshot = Snapshot {
            deployment: deployment.clone(),
            sets,
            old_pods_running: false,
        };
        snapshot.old_pods_running =
            deployment.rolling.is_none() && snapshot.old_sets().iter().any(|set| self.may_run(set));
        Ok(snapshot)
    }

    /// Reports whether a pod of the set may exist. The pods in the cache prove nothing until the set's controller has
    /// observed the set's size and every pod it made.
    fn may_run(&self, set: &SetRef) -> bool {
        let pods = self.pods.controlled(set.namespace(), set.uid());
        !counts_are_of_its_size(set) || set.status.replicas > 0 || pods.iter().any(|pod| !pod.is_terminal())
    }

    /// The sets it controls, after adopting orphans that match and releasing what does not.
    async fn claim(&self, deployment: &DeploymentRef) -> Result<Vec<SetRef>, ReconcileError> {
        let flow = || heavy::flow(ROW.name, deployment.namespace());
        let selector = &deployment.selector;
        let going = deployment.header.is_deleting();
        let owned = self.sets.controlled(deployment.namespace(), deployment.uid());
        if going {
            return Ok(owned);
        }
        let (mut sets, others) = heavy::split(&self.runtime, flow, selector, owned).await;
        for set in others {
            let release = json!({"$patch": "delete", "uid": deployment.uid().0});
            self.patch_owners(&set, release).await?;
        }
        let orphans = self
            .sets
            .by_index(ReplicaSetView::ORPHANS, deployment.namespace());
        let (orphans, _) = heavy::split(&self.runtime, flow, selector, orphans).await;
        for set in orphans.into_iter().filter(|set| !set.header.is_deleting()) {
            still_staying(&self.client, &ApiResource::of::<Deployment>(), &deployment.header).await?;
            let owner = OwnerReference::controller("apps/v1", "Deployment", &deployment.header);
            if self.patch_owners(&set, json!(owner)).await? {
                sets.push(set);
            }
        }
        Ok(sets)
    }

    /// Returns false for one that is gone.
    async fn patch_owners(&self, set: &SetRef, reference: serde_json::Value) -> Result<bool, ReconcileError> {
        let sets = ApiResource::of::<ReplicaSet>();
        match patch_owners(&self.client, &sets, &set.header, &reference).await {
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(ReconcileError::doing("claiming a replica set")(error)),
            Ok(()) => Ok(true),
        }
    }

    async fn round(&self, snapshot: &Snapshot, about: &ObjectReference) -> Result<Outcome, ReconcileError> {
        let plan = plan(snapshot);
        // Annotations first: sizes of the set are decided on its newest version, which the next reconcile has.
        if plan.refresh_new && self.refresh_new(snapshot).await? {
            // The set's own event brings the next round.
            return Ok(Outcome::Done);
        }
        let mut progress = Progress::None;
        let mut name_taken = false;
        let mut failure = None;
        if let Some(size) = plan.create_new {
            match self.create_new(snapshot, size, about).await {
                Ok(Some(name)) => progress = Progress::Created(name),
                Ok(None) => name_taken = true,
                Err(error) => {
                    progress = Progress::Failed(error.to_string());
                    failure = Some(error);
                }
            }
        }
        // Also after a failed creation: old sets may have to shrink, and a quota then has room for the new one.
        self.scale(snapshot, &plan, about).await?;
        self.clean_up(&plan).await?;
        let outcome = self.write_status(snapshot, &progress, name_taken).await?;
        failure.map_or(Ok(outcome), |error| {
            Err(ReconcileError::doing("creating a replica set")(error))
        })
    }

    /// Brings the new set's annotations up to date, then the Deployment's revision; true when something was written.
    async fn refresh_new(&self, snapshot: &Snapshot) -> Result<bool, ReconcileError> {
        let Some(new) = snapshot.new_set() else {
            return Ok(false);
        };
        let deployment = &snapshot.deployment;
        let annotations =
            revisions::new_annotations(deployment, Some(&new.annotations), snapshot.max_old_revision());
        if annotations.iter().collect::<TextMap>() != new.annotations
            || new.min_ready_seconds != deployment.min_ready_seconds
        {
            let body = json!({
                "metadata": {"annotations": annotations, "resourceVersion": new.revision.to_string()},
                "spec": {"minReadySeconds": deployment.min_ready_seconds},
            });
            self.patch_set(deployment.key(), &new, &body)
                .await
                .map_err(ReconcileError::doing("annotating the new set"))?;
            return Ok(true);
        }
        let revision = annotations.get(REVISION).cloned().unwrap_or_default();
        self.write_revision(deployment, &revision).await
    }

    async fn write_revision(
        &self,
        deployment: &DeploymentRef,
        revision: &str,
    ) -> Result<bool, ReconcileError> {
        if deployment
            .annotations
            .get(REVISION)
            .is_some_and(|own| own == revision)
        {
            return Ok(false);
        }
        let own = deployment.annotations.iter();
        let annotations: TextMap = own.chain([(REVISION, revision)]).collect();
        let resource = ApiResource::of::<Deployment>();
        let mut edit = Edit::of(&resource, &deployment.json())?;
        edit.set_in("metadata", "annotations", &annotations)?;
        // With the status, as upstream's: another annotation of the object itself would be another generation.
        let updated = self
            .client
            .writes()
            .update(&resource, deployment.key(), "status", edit.body())
            .await;
        let written = updated.map_err(ReconcileError::doing("writing the revision"))?;
        self.own_writes.record_write(deployment.key(), &written);
        Ok(true)
    }

    async fn patch_set(
        &self,
        key: &ObjectKey,
        set: &SetRef,
        body: &serde_json::Value,
    ) -> Result<(), ClientError> {
        self.expectations.changing(key, set.key().clone());
        let sets = ApiResource::of::<ReplicaSet>();
        let patched = self.client.patch(&sets, set.key(), "", &Patch::Merge, body).await;
        match patched {
            Ok(live) => {
                self.done(key, set.key(), &live);
                Ok(())
            }
            Err(error) => {
                if (400..500).contains(&error.code()) {
                    // Refused for sure; after any other error the outcome is unknown, and the expectation stays
                    // until it is read.
                    self.not_done(key, set.key());
                }
                Err(error)
            }
        }
    }

    /// Makes the new set; `None` when another set has its name.
    async fn create_new(
        &self,
        snapshot: &Snapshot,
        size: i32,
        about: &ObjectReference,
    ) -> Result<Option<String>, ClientError> {
        let deployment = &snapshot.deployment;
        let hash = revisions::template_hash(deployment);
        // A name by the template's hash: a creation that is repeated after a lost answer finds its own set.
        let name = format!("{}-{hash}", deployment.name());
        let body = self.new_set(snapshot, &name, &hash, size);
        let resource = ApiResource::of::<ReplicaSet>();
        let key = ObjectKey::new(deployment.namespace(), &name);
        self.expectations.creating(deployment.key(), key.clone());
        match self.client.create(&resource, deployment.namespace(), &body).await {
            Ok(live) => self.done(deployment.key(), &key, &live),
            Err(error) if error.is_already_exists() => {
                let live = self.client.get(&resource, &key).await?;
                self.done(deployment.key(), &key, &live);
                let ours = parse_header(&live).is_ok_and(|(live, _)| {
                    live.controller()
                        .is_some_and(|owner| owner.uid == *deployment.uid())
                });
                // Ours already: the cache will show it.
                return Ok(ours.then_some(name));
            }
            Err(error) => {
                if (400..500).contains(&error.code()) {
                    self.not_done(deployment.key(), &key);
                }
                let going = error.has_cause("NamespaceTerminating");
                return if going { Ok(Some(name)) } else { Err(error) };
            }
        }
        if size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            self.recorder.normal(about, "ScalingReplicaSet", message);
        }
        Ok(Some(name))
    }

    fn new_set(&self, snapshot: &Snapshot, name: &str, hash: &str, size: i32) -> serde_json::Value {
        let deployment = &snapshot.deployment;
        let labels = revisions::labels(deployment, hash);
        let mut selector = deployment
            .decode::<Written>()
            .map_or_else(|_| json!({}), |written| written.spec.selector);
        selector["matchLabels"][POD_TEMPLATE_HASH] = json!(hash);
        let template = TemplateMeta {
            labels: labels.clone(),
            ..deployment.template.metadata.to_meta()
        };
        let spec: serde_json::Value =
            serde_json::from_str(deployment.template.spec.get()).unwrap_or_default();
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": deployment.namespace(), "labels": labels,
                "annotations": revisions::new_annotations(deployment, None, snapshot.max_old_revision()),
                "ownerReferences": [OwnerReference::controller("apps/v1", "Deployment", &deployment.header)],
            },
            "spec": {
                "replicas": size, "minReadySeconds": deployment.min_ready_seconds,
                "selector": selector, "template": {"metadata": template, "spec": spec},
            },
        })
    }

    async fn scale(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
        about: &ObjectReference,
    ) -> Result<(), ReconcileError> {
        for Scale { set, to } in &plan.scale {
            let sizes: serde_json::Map<_, _> = revisions::sizes(&snapshot.deployment)
                .into_iter()
                .map(|(name, value)| (name, json!(value)))
                .collect();
            let body = json!({
                // The size was decided on this version of the set.
                "metadata": {"annotations": sizes, "resourceVersion": set.revision.to_string()},
                "spec": {"replicas": to},
            });
            self.patch_set(snapshot.deployment.key(), set, &body)
                .await
                .map_err(ReconcileError::doing("scaling a replica set"))?;
            let from = set.replicas;
            let direction = if *to > from { "up" } else { "down" };
            if *to != from {
                let message = format!(
                    "Scaled {direction} replica set {} from {from} to {to}",
                    set.name()
                );
                self.recorder.normal(about, "ScalingReplicaSet", message);
            }
        }
        Ok(())
    }

    async fn clean_up(&self, plan: &Plan) -> Result<(), ReconcileError> {
        for set in &plan.delete {
            let options = DeleteOptions::uid(set.uid());
            match self
                .client
                .delete(&ApiResource::of::<ReplicaSet>(), set.key(), &options)
                .await
            {
                Err(error) if !error.is_not_found() => {
                    return Err(ReconcileError::doing("deleting an old replica set")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn write_status(
        &self,
        snapshot: &Snapshot,
        progress: &Progress,
        name_taken: bool,
    ) -> Result<Outcome, ReconcileError> {
        let deployment = &snapshot.deployment;
        let now = self.runtime.now();
        let status = status(snapshot, snapshot.new_set().as_ref(), progress, name_taken, now);
        if status != deployment.status {
            let resource = ApiResource::of::<Deployment>();
            let mut edit = Edit::of(&resource, &deployment.json())?;
            edit.set("status", &status)?;
            match self
                .client
                .writes()
                .update(&resource, deployment.key(), "status", edit.body())
                .await
            {
                Ok(written) => self.own_writes.record_write(deployment.key(), &written),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(ReconcileError::doing("writing status")(error)),
            }
        }
        Ok(match deadline(deployment, &status) {
            Some(at) if at > now => {
                Outcome::RequeueAfter(Duration::try_from(at.duration_since(now)).unwrap_or_default())
            }
            _ => Outcome::Done,
        })
    }
}

/// A Deployment's selector as it is written, for the sets made from it.
#[derive(Deserialize)]
struct Written {
    spec: WrittenSpec,
}

#[derive(Deserialize)]
struct WrittenSpec {
    selector: serde_json::Value,
}
