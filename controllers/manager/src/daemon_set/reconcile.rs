//! Gather, claim, plan, act, write status. No rule of its own.

use super::ROW;
use super::backoff::{Backoff, Version};
use super::creations::Creations;
use super::eligibility::{Eligibility, Placement};
use super::new_pod::DaemonPods;
use super::plan::{BURST, Changes, PodRef, SetRef, Snapshot, keep};
use super::revisions::{data, hash_of, sort_out};
use super::rolling::roll;
use super::status::{next_available, status};
use crate::heavy;
use crate::history::revisions::{POD_HASH, next_number, surplus};
use crate::history::{Creation, History, NewRevision, RevisionRef};
use crate::pod_claim::PodClaim;
use crate::pod_control::{PodControl, reference, slow_start};
use crate::views::template::{OwnerReference, tree};
use crate::views::{DaemonSetStatus, DaemonSetView, NodeView, Phase, PodView};
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use machinery_client::{ApiResource, Client, ClientError, Edit, Informer};
use machinery_meta::ObjectKey;
use machinery_reconcile::{
    Expectations, ObjectReference, Outcome, ReconcileError, Reconciler, WriteTracker, names,
};
use machinery_runtime::Runtime;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bytes of a template of which one may be an item that is compared with each node.
const ITEM_BYTES: usize = 32;

pub(super) struct DaemonSetReconciler {
    pub(super) client: Client,
    pub(super) pod_control: PodControl,
    pub(super) history: History,
    pub(super) runtime: Runtime,
    pub(super) sets: Informer<DaemonSetView>,
    pub(super) pods: Informer<PodView>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) expectations: Expectations<ObjectKey>,
    pub(super) own_writes: WriteTracker,
    pub(super) creations: Creations,
    pub(super) backoff: Backoff,
}

impl Reconciler for DaemonSetReconciler {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let set = self.sets.get(key).filter(|set| !set.header.is_deleting());
            let Some(set) = set else {
                // A set that is being deleted releases no pod: the garbage collector finds its pods by their owner.
                self.expectations.forget(key);
                self.own_writes.forget(key);
                self.creations.forget(key);
                self.backoff.forget(key);
                return Ok(Outcome::Done);
            };
            if self.own_writes.cache_is_stale(&set) {
                return Ok(Outcome::Done);
            }
            let about = reference(&ApiResource::of::<DaemonSet>(), &set.header);
            if set.selector.is_everything() {
                self.pod_control.recorder().warning(
                    &about,
                    "SelectingAll",
                    "This daemon set is selecting all pods. A non-empty selector is required.",
                );
                return Ok(Outcome::Done);
            }
            self.round(&set, &about).await
        })
    }
}

impl DaemonSetReconciler {
    async fn round(&self, set: &SetRef, about: &ObjectReference) -> Result<Outcome, ReconcileError> {
        let pods = self.claim(set, about).await?;
        let Some((current, old)) = self.revisions(set, &pods).await? else {
            // The revision's event, or that of the status that counts a collision, brings the next round.
            return Ok(Outcome::Done);
        };
        let placement = Placement::of(&set.template).map_err(unusable)?;
        let new_pods = DaemonPods::of(set, &placement, hash_of(&current)).map_err(unusable)?;
        let awaited = self.expectations.settle(set.key(), &self.pods);
        self.create_again(set, about, &new_pods, awaited.unacknowledged.clone())
            .await?;
        let nodes = self.eligible(set, placement).await;
        let snapshot = Snapshot {
            hash: hash_of(&current).to_owned(),
            nodes,
            held: self.backoff.held(set.key(), &version(set), self.runtime.now()),
            now: self.runtime.now(),
            set: set.clone(),
            pods,
        };
        let mut requeue_at = None;
        let mut acted = Ok(());
        if awaited.is_settled() {
            let mut changes = keep(&snapshot);
            requeue_at = changes.requeue_at;
            if changes.is_empty() {
                // Never both: a rolling update counts unavailable pods, and missing ones are not replaced yet.
                changes = roll(&snapshot);
            } else {
                let deleted = changes.delete.iter().take(BURST);
                deleted.for_each(|pod| self.say_why(&snapshot, about, pod));
            }
            acted = self.act(&snapshot, about, &new_pods, changes).await;
            if acted.is_ok() {
                acted = self.clean_up(&snapshot, &old).await;
            }
        }
        let status = status(&snapshot, awaited.is_settled());
        self.write_status(set, &status).await?;
        acted.map(|()| {
            self.requeue(
                [requeue_at, next_available(&snapshot)]
                    .into_iter()
                    .flatten()
                    .min(),
            )
        })
    }

    /// The eligibility of each node. Long terms of affinity are compared with many nodes on a thread for heavy work.
    async fn eligible(&self, set: &SetRef, placement: Placement) -> BTreeMap<String, Eligibility> {
        let nodes = self.nodes.list();
        let items = set.template.spec.get().len() / ITEM_BYTES;
        let of_nodes = move || placement.of_nodes(nodes.iter().map(|node| &**node));
        if items.saturating_mul(self.nodes.len()) <= heavy::LIGHT {
            return of_nodes();
        }
        let flow = heavy::flow(ROW.name, set.namespace());
        self.runtime.heavy(flow, of_nodes).await
    }

    /// The pods whose controller is the set, after adopting orphans that match and releasing what does not.
    async fn claim(&self, set: &SetRef, about: &ObjectReference) -> Result<Vec<PodRef>, ReconcileError> {
        let flow = || heavy::flow(ROW.name, set.namespace());
        let owned = self.pods.controlled(set.namespace(), set.uid());
        let (mut pods, others) = heavy::split(&self.runtime, flow, &set.selector, owned).await;
        let orphans = self.pods.by_index(PodView::ORPHANS, set.namespace());
        let (mut adopted, _) = heavy::split(&self.runtime, flow, &set.selector, orphans).await;
        adopted.retain(|pod| !pod.header.is_deleting());
        let claim = PodClaim {
            kind: &ApiResource::of::<DaemonSet>(),
            owner: &set.header,
            adopt: &adopted,
            release: &others,
            finalizer: None,
        };
        let gone = self.pod_control.claim(&claim, about).await?;
        adopted.retain(|pod| !gone.contains(pod.uid()));
        pods.extend(adopted);
        Ok(pods)
    }

    /// The revision of the present template and the others; `None` where one was made or labelled and is to be seen first.
    async fn revisions(
        &self,
        set: &SetRef,
        pods: &[PodRef],
    ) -> Result<Option<(RevisionRef, Vec<RevisionRef>)>, ReconcileError> {
        let kind = ApiResource::of::<DaemonSet>();
        let all = self.history.claim(&kind, &set.header, &set.selector).await?;
        let data = data(set).map_err(unusable)?;
        let sorted = sort_out(&all, &data);
        let number = next_number(&sorted.old);
        let Some(current) = sorted.current else {
            self.create_revision(set, &data, number).await?;
            return Ok(None);
        };
        let unlabelled = all.iter().filter(|own| hash_of(own).is_empty());
        let unlabelled: Vec<_> = unlabelled.collect();
        for own in &unlabelled {
            self.history
                .label(own, POD_HASH, own.name())
                .await
                .map_err(ReconcileError::doing("labelling a revision"))?;
        }
        if !unlabelled.is_empty() {
            return Ok(None);
        }
        if !sorted.duplicates.is_empty() {
            self.drop_duplicates(&current, &sorted.duplicates, pods).await?;
        }
        // The present template must have the highest number, or a rollback would be undone by the next round.
        if current.number < number {
            self.history
                .renumber(&current, number)
                .await
                .map_err(ReconcileError::doing("numbering a revision"))?;
        }
        Ok(Some((current, sorted.old)))
    }

    async fn create_revision(&self, set: &SetRef, data: &str, number: i64) -> Result<(), ReconcileError> {
        let new = NewRevision {
            data,
            number,
            collisions: set.status.collision_count,
            labels: tree(&set.template.metadata.labels),
            hash_label: POD_HASH,
            annotations: tree(&set.annotations),
        };
        let kind = ApiResource::of::<DaemonSet>();
        let created = self.history.create(&kind, &set.header, &set.selector, new).await;
        match created {
            Ok(Creation::Done) => Ok(()),
            Ok(Creation::NameTaken) => {
                let count = set.status.collision_count.unwrap_or(0).wrapping_add(1);
                let status = DaemonSetStatus {
                    collision_count: Some(count),
                    ..set.status.clone()
                };
                self.write_status(set, &status).await
            }
            // A namespace that is going takes nothing; the set goes with it.
            Err(error) if error.has_cause("NamespaceTerminating") => Ok(()),
            Err(error) => Err(ReconcileError::doing("creating a revision")(error)),
        }
    }

    /// Pods of duplicates get the hash of the revision that stays, so that they are not replaced for nothing.
    async fn drop_duplicates(
        &self,
        current: &RevisionRef,
        duplicates: &[RevisionRef],
        pods: &[PodRef],
    ) -> Result<(), ReconcileError> {
        let hash = hash_of(current);
        let of_duplicates: BTreeSet<_> = duplicates.iter().map(hash_of).collect();
        let theirs = |pod: &&PodRef| {
            pod.header
                .label(POD_HASH)
                .is_some_and(|own| of_duplicates.contains(own))
        };
        for pod in pods.iter().filter(theirs) {
            match self.pod_control.label(pod, POD_HASH, hash).await {
                Err(error) if !error.is_not_found() => {
                    return Err(ReconcileError::doing("labelling a pod")(error));
                }
                _ => {}
            }
        }
        for own in duplicates {
            self.history
                .delete(own)
                .await
                .map_err(ReconcileError::doing("deleting a revision"))?;
        }
        Ok(())
    }

    /// Sends creations again whose answer was lost, under the same names.
    async fn create_again(
        &self,
        set: &SetRef,
        about: &ObjectReference,
        new_pods: &DaemonPods,
        lost: Vec<ObjectKey>,
    ) -> Result<(), ReconcileError> {
        let with_node = |key: ObjectKey| {
            let node = self.creations.node_of(set.key(), &key);
            if node.is_none() {
                self.expectations.not_created(set.key(), &key);
            }
            node.map(|node| (key, node))
        };
        let lost: Vec<_> = lost.into_iter().filter_map(with_node).collect();
        self.create(set, about, new_pods, lost).await
    }

    async fn create(
        &self,
        set: &SetRef,
        about: &ObjectReference,
        new_pods: &DaemonPods,
        pods: Vec<(ObjectKey, String)>,
    ) -> Result<(), ReconcileError> {
        let attempted = pods.len();
        let one = |(key, node)| self.create_one(set, about, new_pods, key, node);
        let (done, first) = slow_start(pods, one).await;
        match first {
            // A namespace that is going takes no pods; the set goes with it.
            Some(first) if !first.has_cause("NamespaceTerminating") => Err(ReconcileError::Partly {
                failed: attempted - done,
                attempted,
                first,
            }),
            _ => Ok(()),
        }
    }

    async fn create_one(
        &self,
        set: &SetRef,
        about: &ObjectReference,
        new_pods: &DaemonPods,
        key: ObjectKey,
        node: String,
    ) -> Result<(), ClientError> {
        let template = new_pods.on(&node).map_err(|source| ClientError::Decode {
            what: set.key().to_string(),
            source,
        })?;
        let owner = OwnerReference::controller("apps/v1", "DaemonSet", &set.header);
        let pod = template.pod(set.namespace(), &key.name, &prefix(set), owner);
        self.pod_control
            .create(&self.expectations, about, key, &pod)
            .await
    }

    async fn act(
        &self,
        snapshot: &Snapshot,
        about: &ObjectReference,
        new_pods: &DaemonPods,
        mut changes: Changes,
    ) -> Result<(), ReconcileError> {
        let set = &snapshot.set;
        // A large cluster takes several reconciles, as upstream's `burstReplicas`.
        changes.create.truncate(BURST);
        changes.delete.truncate(BURST);
        let name = || names::generate(&self.runtime, &prefix(set));
        let pods = changes.create.into_iter();
        let pods: Vec<_> = pods
            .map(|node| (ObjectKey::new(set.namespace(), name()), node))
            .collect();
        // Noted before the requests: a lost answer leaves only the name, and the node is in no name.
        self.creations.begin(set.key(), &pods);
        let created = self.create(set, about, new_pods, pods).await;
        let deletions = changes
            .delete
            .iter()
            .map(|pod| self.pod_control.delete(&self.expectations, about, pod));
        let failed = join_all(deletions).await.into_iter().filter_map(Result::err);
        let mut failed = failed.collect::<Vec<_>>().into_iter();
        // After the deletions, which do not depend on it.
        created?;
        failed.next().map_or(Ok(()), |first| {
            Err(ReconcileError::Partly {
                failed: failed.len() + 1,
                attempted: changes.delete.len(),
                first,
            })
        })
    }

    /// Pods that have ended are deleted with an event that says so, and the next failed one of the node stays longer.
    fn say_why(&self, snapshot: &Snapshot, about: &ObjectReference, pod: &PodRef) {
        let (set, node) = (&snapshot.set, &*pod.target_node);
        let may_stay = snapshot.nodes.get(node).is_some_and(|own| own.should_continue);
        let found = |phase: &str, what: &str| {
            format!(
                "Found {phase} daemon pod {} on node {node}, will try to {what} it",
                pod.key()
            )
        };
        let recorder = self.pod_control.recorder();
        match pod.phase {
            Phase::Failed if may_stay => {
                self.backoff
                    .replaced(set.key(), &version(set), node, snapshot.now);
                recorder.warning(about, "FailedDaemonPod", found("failed", "kill"));
            }
            Phase::Succeeded if may_stay => {
                recorder.normal(about, "SucceededDaemonPod", found("succeeded", "delete"));
            }
            _ => {}
        }
    }

    async fn clean_up(&self, snapshot: &Snapshot, old: &[RevisionRef]) -> Result<(), ReconcileError> {
        let hashes = snapshot.pods.iter().filter_map(|pod| pod.header.label(POD_HASH));
        let live: BTreeSet<_> = hashes.collect();
        let limit = usize::try_from(snapshot.set.revision_history_limit).unwrap_or(0);
        for own in surplus(old, limit, |own| live.contains(hash_of(own))) {
            self.history
                .delete(&own)
                .await
                .map_err(ReconcileError::doing("deleting an old revision"))?;
        }
        Ok(())
    }

    async fn write_status(&self, set: &SetRef, status: &DaemonSetStatus) -> Result<(), ReconcileError> {
        if *status == set.status {
            return Ok(());
        }
        let resource = ApiResource::of::<DaemonSet>();
        let mut edit = Edit::of(&resource, &set.json())?;
        edit.set("status", status)?;
        let updated = self
            .client
            .writes()
            .update(&resource, set.key(), "status", edit.body());
        match updated.await {
            Ok(written) => {
                self.own_writes.record_write(set.key(), &written);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(ReconcileError::doing("writing status")(error)),
        }
    }

    fn requeue(&self, at: Option<Timestamp>) -> Outcome {
        at.map_or(Outcome::Done, |at| {
            let wait = at.duration_since(self.runtime.now());
            Outcome::RequeueAfter(Duration::try_from(wait).unwrap_or(Duration::from_millis(1)))
        })
    }
}

fn prefix(set: &SetRef) -> String {
    format!("{}-", set.name())
}

fn version(set: &SetRef) -> Version {
    Version {
        uid: set.uid().clone(),
        observed_generation: set.status.observed_generation,
    }
}

fn unusable(error: serde_json::Error) -> ReconcileError {
    ReconcileError::Unusable(format!("the template cannot be read: {error}"))
}
