//! Gather, claim, find the revisions, plan, act, write status. No rule of its own.

use super::ROW;
use super::act::Act;
use super::claims;
use super::plan::{Members, Plan, PodRef, SetRef, Snapshot, members, next_available, plan};
use super::status::{differs, status};
use crate::heavy;
use crate::history::revisions::{DATA_HASH, equal, hash, name, next_number, surplus, template_data};
use crate::history::{Creation, History, NewRevision, RevisionRef};
use crate::pod_claim::PodClaim;
use crate::pod_control::{PodControl, reference};
use crate::views::template::{PodTemplate, tree};
use crate::views::{PodView, StatefulSetStatus, StatefulSetView};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, Edit, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Expectations, ObjectReference, Outcome, ReconcileError, Reconciler, WriteTracker};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::Reading;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) struct StatefulSetReconciler {
    pub(super) client: Client,
    pub(super) pod_control: PodControl,
    pub(super) history: History,
    pub(super) runtime: Runtime,
    pub(super) sets: Informer<StatefulSetView>,
    pub(super) pods: Informer<PodView>,
    pub(super) claims: Informer<()>,
    /// Pods made and deleted and not seen yet: a place would be taken for empty, or for another pod's.
    pub(super) expectations: Expectations<ObjectKey>,
    pub(super) own_writes: WriteTracker,
    pub(super) _readings: [Reading; 2],
}

/// Names tried in one round: a user that makes more of them in advance gets errors instead of a round without end.
const MAX_COLLISIONS: u32 = 16;

/// A revision as pods get it.
#[derive(Debug)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: PodTemplate,
}

/// Revisions of a set in one round.
struct Revisions {
    /// `None` where it is the update revision.
    current: Option<Revision>,
    update: Revision,
    all: Vec<RevisionRef>,
    collision_count: i32,
}

/// Members of a set that are read from its bytes in each round.
#[derive(Deserialize)]
struct Written {
    metadata: Meta,
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    selector: MatchLabels,
    template: Box<RawValue>,
    #[serde(default)]
    volume_claim_templates: Vec<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct MatchLabels {
    match_labels: BTreeMap<String, String>,
}

/// The data of a revision.
#[derive(Deserialize)]
struct Data {
    spec: DataSpec,
}

#[derive(Deserialize)]
struct DataSpec {
    template: PodTemplate,
}

impl Reconciler for StatefulSetReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(set) = self.sets.get(key) else {
                self.expectations.forget(key);
                self.own_writes.forget(key);
                return Ok(Outcome::Done);
            };
            // Identities are unique: a pod that the cache does not show yet would be created a second time, and
            // the conflict reported as a failure.
            if self.own_writes.cache_is_stale(&set) || !self.has_seen_its_own_doing(key).await? {
                // What is missing will wake us.
                return Ok(Outcome::Done);
            }
            self.round(&set).await
        })
    }
}

impl StatefulSetReconciler {
    /// Reports whether the cache shows every pod that was made and deleted; pods of lost answers are read from the
    /// server.
    async fn has_seen_its_own_doing(&self, key: &ObjectKey) -> Result<bool, ReconcileError> {
        let awaited = self.expectations.settle(key, &self.pods);
        for pod in &awaited.unacknowledged {
            match self.client.get(&ApiResource::of::<Pod>(), pod).await {
                Ok(live) => {
                    let at = parse_header(&live).map(|(_, at)| at).unwrap_or_default();
                    self.expectations.created(key, pod, at);
                }
                Err(error) if error.is_not_found() => self.expectations.not_created(key, pod),
                Err(error) => return Err(ReconcileError::doing("reading a pod")(error)),
            }
        }
        Ok(awaited.is_settled() || self.expectations.settle(key, &self.pods).is_settled())
    }

    async fn round(&self, set: &SetRef) -> Result<Outcome, ReconcileError> {
        let about = reference(&ApiResource::of::<StatefulSet>(), &set.header);
        let written: Written = set.decode()?;
        let members = self.claim(set, &about).await?;
        let revisions = self.revisions(set, &written).await?;
        let current = revisions.current.as_ref().unwrap_or(&revisions.update);
        let claim = |name: &str| {
            let claim = self.claims.get(&ObjectKey::new(set.namespace(), name))?;
            Some(claim.header.clone())
        };
        let snapshot = Snapshot {
            set: set.clone(),
            pods: members.pods,
            current: &current.name,
            update: &revisions.update.name,
            claim_templates: claims::names(&written.spec.volume_claim_templates).collect(),
            claim: &claim,
            now: self.runtime.now(),
        };
        let act = Act {
            control: self,
            set,
            about: &about,
            current,
            update: &revisions.update,
            claim_templates: &written.spec.volume_claim_templates,
            match_labels: &written.spec.selector.match_labels,
        };
        let plan = if snapshot.lookups() > heavy::LIGHT {
            self.plan_in_turn(&snapshot).await
        } else {
            plan(&snapshot)
        };
        // The status is written before the error is returned: it says how far an update got.
        let (updating, done) = act.run(&plan).await;
        let status = status(&snapshot, revisions.collision_count, updating);
        self.write_status(set, &status).await?;
        done?;
        // Last: only then the pods that were deleted in this round no longer hold their revision.
        self.truncate(&snapshot, &revisions.all).await?;
        Ok(self.requeue(&snapshot))
    }

    /// Plans for many pods with many claims on a thread for heavy work.
    async fn plan_in_turn(&self, snapshot: &Snapshot<'_>) -> Plan {
        let (set, pods, now) = (snapshot.set.clone(), snapshot.pods.clone(), snapshot.now);
        let (current, update) = (snapshot.current.to_owned(), snapshot.update.to_owned());
        let templates = snapshot.claim_templates.iter().map(|name| (*name).to_owned());
        let templates: Vec<String> = templates.collect();
        let claims = self.claims.clone();
        let flow = heavy::flow(ROW.name, set.namespace());
        let planning = move || {
            let claim = |name: &str| {
                let claim = claims.get(&ObjectKey::new(set.namespace(), name))?;
                Some(claim.header.clone())
            };
            plan(&Snapshot {
                set: set.clone(),
                pods,
                current: &current,
                update: &update,
                claim_templates: templates.iter().map(String::as_str).collect(),
                claim: &claim,
                now,
            })
        };
        self.runtime.heavy(flow, planning).await
    }

    /// Adopts and releases; before the first adoption the live set is read: it must exist and not be deleted.
    async fn claim(&self, set: &SetRef, about: &ObjectReference) -> Result<Members, ReconcileError> {
        let owned = self.pods.controlled(set.namespace(), set.uid());
        let orphans = self.pods.by_index(PodView::ORPHANS, set.namespace());
        let comparisons = set
            .selector
            .comparisons()
            .saturating_mul(owned.len() + orphans.len());
        let flow = || heavy::flow(ROW.name, set.namespace());
        let of_set = set.clone();
        let find = move || members(&of_set, owned, orphans);
        let mut members = heavy::step(&self.runtime, flow, comparisons, find).await;
        let claim = PodClaim {
            kind: &ApiResource::of::<StatefulSet>(),
            owner: &set.header,
            adopt: &members.adopt,
            release: &members.release,
            finalizer: None,
        };
        let gone = self.pod_control.claim(&claim, about).await?;
        members.pods.retain(|_, pod| !gone.contains(pod.uid()));
        Ok(members)
    }

    /// The current and the update revision; the update revision is made, or gets the next number, where the template is
    /// not that of the newest.
    async fn revisions(&self, set: &SetRef, written: &Written) -> Result<Revisions, ReconcileError> {
        let kind = ApiResource::of::<StatefulSet>();
        let all = self.history.claim(&kind, &set.header, &set.selector).await?;
        let template: PodTemplate =
            machinery_client::json::from_str(written.spec.template.get()).map_err(unreadable)?;
        let data = template_data(written.spec.template.get()).map_err(unreadable)?;
        let mut collision_count = set.status.collision_count.unwrap_or(0);
        let same = equal(&all, &data).last();
        let is_newest = all.last().is_some_and(|newest| *newest.data == *data);
        let update = match same {
            Some(same) => {
                // A rollback: the template of an older revision gets the newest number, as upstream's
                // `getStatefulSetRevisions`.
                if !is_newest {
                    let number = next_number(&all);
                    let renumbered = self.history.renumber(same, number).await;
                    renumbered.map_err(ReconcileError::doing("renumbering a revision"))?;
                }
                same.name().to_owned()
            }
            None => {
                let labels = tree(&template.metadata.labels);
                self.create_revision(
                    set,
                    written,
                    &data,
                    labels,
                    (next_number(&all), &mut collision_count),
                )
                .await?
            }
        };
        let is_current =
            |own: &&RevisionRef| own.name() == set.status.current_revision && own.name() != update;
        let current = all.iter().find(is_current).map(|own| {
            let data: Data = serde_json::from_str(&own.data)?;
            Ok(Revision {
                name: own.name().to_owned(),
                template: data.spec.template,
            })
        });
        Ok(Revisions {
            current: current.transpose().map_err(unreadable)?,
            update: Revision {
                name: update,
                template,
            },
            all,
            collision_count,
        })
    }

    /// Makes a revision and returns its name. A name that is taken counts as a collision and gives another one.
    async fn create_revision(
        &self,
        set: &SetRef,
        written: &Written,
        data: &str,
        labels: BTreeMap<String, String>,
        (number, collision_count): (i64, &mut i32),
    ) -> Result<String, ReconcileError> {
        let kind = ApiResource::of::<StatefulSet>();
        for _ in 0..MAX_COLLISIONS {
            let new = NewRevision {
                data,
                number,
                collisions: Some(*collision_count),
                labels: labels.clone(),
                hash_label: DATA_HASH,
                annotations: written.metadata.annotations.clone(),
            };
            let created = self.history.create(&kind, &set.header, &set.selector, new).await;
            match created.map_err(ReconcileError::doing("creating a revision"))? {
                Creation::Done => return Ok(name(set.name(), &hash(data, Some(*collision_count)))),
                Creation::NameTaken => *collision_count = collision_count.saturating_add(1),
            }
        }
        Err(ReconcileError::Unusable(
            "too many revisions have the names of this one".to_owned(),
        ))
    }

    async fn write_status(&self, set: &SetRef, status: &StatefulSetStatus) -> Result<(), ReconcileError> {
        if !differs(status, &set.status) {
            return Ok(());
        }
        let resource = ApiResource::of::<StatefulSet>();
        let mut edit = Edit::of(&resource, &set.json())?;
        edit.set("status", status)?;
        match self
            .client
            .writes()
            .update(&resource, set.key(), "status", edit.body())
            .await
        {
            Ok(written) => {
                self.own_writes.record_write(set.key(), &written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(ReconcileError::doing("writing status")(error)),
        }
    }

    /// Deletes revisions that no pod has, beyond the history limit.
    async fn truncate(&self, snapshot: &Snapshot<'_>, all: &[RevisionRef]) -> Result<(), ReconcileError> {
        let of_pods: BTreeSet<&str> = snapshot
            .pods
            .values()
            .map(|pod: &PodRef| super::identity::revision_of(pod))
            .collect();
        let is_live =
            |name: &str| name == snapshot.current || name == snapshot.update || of_pods.contains(name);
        let past: Vec<_> = all.iter().filter(|own| !is_live(own.name())).cloned().collect();
        // A negative limit keeps all.
        let limit = usize::try_from(snapshot.set.revision_history_limit).unwrap_or(usize::MAX);
        for own in surplus(&past, limit, |own| own.header.is_deleting()) {
            let deleted = self.history.delete(&own).await;
            deleted.map_err(ReconcileError::doing("deleting a revision"))?;
        }
        Ok(())
    }

    fn requeue(&self, snapshot: &Snapshot<'_>) -> Outcome {
        let Some(at) = next_available(snapshot) else {
            return Outcome::Done;
        };
        let wait = at.duration_since(self.runtime.now());
        Outcome::RequeueAfter(Duration::try_from(wait).unwrap_or_default())
    }
}

fn unreadable(source: serde_json::Error) -> ClientError {
    ClientError::Decode {
        what: "the pod template".to_owned(),
        source,
    }
}
