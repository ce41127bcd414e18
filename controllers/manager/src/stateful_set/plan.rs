//! Next steps of a set. Pure.

use super::claims::{ClaimUser, is_owned_rightly, is_stale};
use super::identity::{self, claim_name, ordinal_of, revision_of};
use crate::pod_control::BURST_REPLICAS;
use crate::views::pod::Phase;
use crate::views::{PodView, StatefulSetView};
use jiff::Timestamp;
use machinery_client::Object;
use machinery_meta::ObjectHeader;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A pod as plans handle it.
pub(super) type PodRef = Arc<Object<PodView>>;
/// A set as plans handle it.
pub(super) type SetRef = Arc<Object<StatefulSetView>>;

/// Input of a plan.
pub(super) struct Snapshot<'a> {
    pub(super) set: SetRef,
    /// Pods of the set by their ordinals.
    pub(super) pods: BTreeMap<i32, PodRef>,
    /// Name of the revision that pods had before the update.
    pub(super) current: &'a str,
    /// Name of the revision of the present template.
    pub(super) update: &'a str,
    /// Names of the claim templates.
    pub(super) claim_templates: Vec<&'a str>,
    /// Finds a claim by its name.
    pub(super) claim: &'a (dyn Fn(&str) -> Option<Arc<ObjectHeader>> + Sync),
    pub(super) now: Timestamp,
}

/// One step.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Make the pod of this ordinal, of the current revision or else of the update revision.
    Create {
        ordinal: i32,
        current: bool,
    },
    /// Make missing claims of a pending pod, and put their owners right.
    FillClaims(PodRef),
    /// Put labels, volumes and owners of claims right.
    Repair(PodRef),
    Delete(PodRef),
}

/// Changes to carry out, phase after phase; a phase that fails is the last.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// On pods that are to be there.
    pub(super) replicas: Vec<Step>,
    /// Pods that are too many and whose claims have the wrong owners.
    pub(super) condemned_claims: Vec<PodRef>,
    /// Pods that are too many and go now.
    pub(super) condemned: Vec<PodRef>,
    /// Pods that go to come back with the update revision.
    pub(super) update: Vec<PodRef>,
}

impl Snapshot<'_> {
    fn is_available(&self, pod: &PodRef) -> bool {
        pod.is_available(self.set.min_ready_seconds, self.now)
    }

    fn is_unavailable(&self, pod: &PodRef) -> bool {
        !self.is_available(pod) || pod.header.is_deleting()
    }

    fn is_running_and_available(&self, pod: &PodRef) -> bool {
        is_running_and_ready(pod) && self.is_available(pod)
    }

    /// Pods that are to be there, by ordinal.
    fn replicas(&self) -> impl DoubleEndedIterator<Item = (i32, &PodRef)> {
        let all = self.pods.iter().map(|(ordinal, pod)| (*ordinal, pod));
        all.filter(|(ordinal, _)| identity::is_in_range(&self.set, *ordinal))
    }

    /// Pods that are too many, the highest ordinal first.
    fn condemned(&self) -> Vec<(i32, &PodRef)> {
        let all = self.pods.iter().rev().map(|(ordinal, pod)| (*ordinal, pod));
        all.filter(|(ordinal, _)| !identity::is_in_range(&self.set, *ordinal))
            .collect()
    }

    fn claims<'a>(&'a self, ordinal: i32) -> impl Iterator<Item = Option<Arc<ObjectHeader>>> + 'a {
        let name = move |template: &&str| claim_name(template, self.set.name(), ordinal.into());
        self.claim_templates
            .iter()
            .map(move |template| (self.claim)(&name(template)))
    }

    fn claims_are_owned_rightly(&self, ordinal: i32, pod: &PodRef) -> bool {
        let user = user(ordinal, pod);
        self.claims(ordinal)
            .flatten()
            .all(|claim| is_owned_rightly(&self.set, user, &claim.owners))
    }

    /// Reports whether the pod to be made would begin with a claim of its predecessor that is about to go.
    fn waits_for_stale_claim(&self, ordinal: i32) -> bool {
        let name = identity::pod_name(self.set.name(), ordinal.into());
        let user = ClaimUser {
            name: &name,
            uid: "",
            ordinal,
        };
        self.set.retention.delete_when_scaled
            && self
                .claims(ordinal)
                .flatten()
                .any(|claim| is_stale(&claim.owners, user))
    }

    /// Reports whether a new pod of this ordinal is still of the current revision.
    fn is_below_partition(&self, ordinal: i64) -> bool {
        let start = i64::from(self.set.start);
        match self.set.rolling {
            Some(rolling) => ordinal < start + i64::from(rolling.partition),
            None => !self.set.on_delete && ordinal < start + i64::from(self.set.status.current_replicas),
        }
    }

    /// Claims that a plan looks up, about.
    pub(super) fn lookups(&self) -> usize {
        let places = self.pods.len().saturating_add(BURST_REPLICAS);
        self.claim_templates.len().saturating_mul(places)
    }

    fn storage_matches(&self, ordinal: i32, pod: &PodRef) -> bool {
        let there: HashSet<&str> = pod.claims.iter().map(|claim| &*claim.name).collect();
        let expected = |template: &&str| claim_name(template, self.set.name(), ordinal.into());
        self.claim_templates
            .iter()
            .all(|template| there.contains(&*expected(template)))
    }
}

/// Decides. A set that is being deleted does nothing but report.
pub(super) fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let mut plan = Plan::default();
    if snapshot.set.header.is_deleting() {
        return plan;
    }
    let goes_on = if snapshot.set.parallel {
        parallel_replicas(snapshot, &mut plan);
        true
    } else {
        ordered_replicas(snapshot, &mut plan)
    };
    if !goes_on {
        return plan;
    }
    let condemned = snapshot.condemned();
    plan.condemned_claims = condemned
        .iter()
        .filter(|(ordinal, pod)| !snapshot.claims_are_owned_rightly(*ordinal, pod))
        .map(|(_, pod)| (*pod).clone())
        .collect();
    if snapshot.set.parallel {
        let staying = condemned.iter().filter(|(_, pod)| !pod.header.is_deleting());
        plan.condemned = staying.map(|(_, pod)| (*pod).clone()).collect();
    } else if !condemned.is_empty() {
        plan.condemned.extend(next_condemned(snapshot, &condemned));
        return plan;
    }
    if !snapshot.set.on_delete {
        update(snapshot, &mut plan);
    }
    plan
}

/// One step for the first pod that needs it; true where every pod is there and available.
fn ordered_replicas(snapshot: &Snapshot<'_>, plan: &mut Plan) -> bool {
    let (start, end) = identity::range(&snapshot.set);
    for ordinal in start..end {
        // Ordinals beyond the largest number have no pods: the name could not be read back.
        let Ok(place) = i32::try_from(ordinal) else {
            return false;
        };
        let Some(pod) = snapshot.pods.get(&place) else {
            create(snapshot, place, plan);
            return false;
        };
        if pod.is_terminal() {
            delete_ended(pod, plan);
            return false;
        }
        if pod.phase == Phase::Pending {
            fill_claims(snapshot, place, pod, plan);
        }
        if pod.header.is_deleting() || !snapshot.is_running_and_available(pod) {
            return false;
        }
        repair(snapshot, place, pod, plan);
    }
    true
}

fn parallel_replicas(snapshot: &Snapshot<'_>, plan: &mut Plan) {
    for (ordinal, pod) in snapshot.replicas() {
        if pod.is_terminal() {
            delete_ended(pod, plan);
            continue;
        }
        if pod.phase == Phase::Pending {
            fill_claims(snapshot, ordinal, pod, plan);
        }
        repair(snapshot, ordinal, pod, plan);
    }
    let (start, end) = identity::range(&snapshot.set);
    let places = (start..end).map_while(|ordinal| i32::try_from(ordinal).ok());
    let missing = places.filter(|place| !snapshot.pods.contains_key(place));
    for place in missing.take(BURST_REPLICAS) {
        create(snapshot, place, plan);
    }
}

fn create(snapshot: &Snapshot<'_>, ordinal: i32, plan: &mut Plan) {
    if !snapshot.waits_for_stale_claim(ordinal) {
        plan.replicas.push(Step::Create {
            ordinal,
            current: snapshot.is_below_partition(ordinal.into()),
        });
    }
}

/// A pod that has ended, well or badly, goes; the next round recreates it.
fn delete_ended(pod: &PodRef, plan: &mut Plan) {
    if !pod.header.is_deleting() {
        plan.replicas.push(Step::Delete(pod.clone()));
    }
}

fn fill_claims(snapshot: &Snapshot<'_>, ordinal: i32, pod: &PodRef, plan: &mut Plan) {
    let usable = |claim: Option<Arc<ObjectHeader>>| claim.is_some_and(|claim| !claim.is_deleting());
    let all_there = snapshot.claims(ordinal).all(usable);
    if !all_there || !snapshot.claims_are_owned_rightly(ordinal, pod) {
        plan.replicas.push(Step::FillClaims(pod.clone()));
    }
}

fn repair(snapshot: &Snapshot<'_>, ordinal: i32, pod: &PodRef, plan: &mut Plan) {
    let right = identity::matches(pod)
        && snapshot.storage_matches(ordinal, pod)
        && snapshot.claims_are_owned_rightly(ordinal, pod);
    if !right {
        plan.replicas.push(Step::Repair(pod.clone()));
    }
}

/// Of the pods that are too many the highest, once it is healthy or is the only one that is not. One that has ended never
/// becomes healthy and goes as well; upstream waits for it, for ever where a lower one has ended too.
fn next_condemned(snapshot: &Snapshot<'_>, condemned: &[(i32, &PodRef)]) -> Option<PodRef> {
    let (_, highest) = condemned.first()?;
    if highest.header.is_deleting() {
        return None;
    }
    let unavailable = condemned
        .iter()
        .rev()
        .find(|(_, pod)| snapshot.is_unavailable(pod));
    let is_first_unavailable = unavailable.is_some_and(|(_, pod)| pod.uid() == highest.uid());
    let may_go = highest.is_terminal() || is_first_unavailable || snapshot.is_running_and_available(highest);
    may_go.then(|| (*highest).clone())
}

/// Deletes pods of other revisions, the highest ordinal first, while few enough are unavailable.
fn update(snapshot: &Snapshot<'_>, plan: &mut Plan) {
    let set = &snapshot.set;
    let (partition, max_unavailable) = set
        .rolling
        .map_or((0, 1), |rolling| (rolling.partition, rolling.max_unavailable));
    let there = snapshot.replicas().count();
    let missing = i64::from(set.replicas) - i64::try_from(there).unwrap_or(i64::MAX);
    let unavailable = snapshot
        .replicas()
        .filter(|(_, pod)| snapshot.is_unavailable(pod))
        .count();
    let budget = i64::from(max_unavailable) - missing - i64::try_from(unavailable).unwrap_or(i64::MAX);
    let mut budget = usize::try_from(budget).unwrap_or(0);
    let first = i64::from(set.start) + i64::from(partition);
    let ended: HashSet<&str> = plan.replicas.iter().filter_map(Step::deleted).collect();
    let old: Vec<_> = snapshot
        .replicas()
        .rev()
        .filter(|(ordinal, pod)| {
            i64::from(*ordinal) >= first
                && revision_of(pod) != snapshot.update
                && !pod.header.is_deleting()
                && !ended.contains(&*pod.uid().0)
        })
        .map(|(_, pod)| pod)
        .collect();
    if set.parallel {
        // What is unavailable serves no client: it goes first, and costs nothing of what may be unavailable.
        let broken = old.iter().filter(|pod| !snapshot.is_available(pod));
        plan.update.extend(broken.map(|pod| (*pod).clone()));
    }
    for pod in old {
        if budget == 0 {
            break;
        }
        if !set.parallel || !snapshot.is_unavailable(pod) {
            plan.update.push(pod.clone());
            budget -= 1;
        }
    }
}

impl Step {
    /// The uid of the pod that it deletes.
    fn deleted(&self) -> Option<&str> {
        match self {
            Self::Delete(own) => Some(&own.uid().0),
            _ => None,
        }
    }
}

/// Pods that the set owns or adopts, and pods to be released. A pod's name must be one of the set's.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) pods: BTreeMap<i32, PodRef>,
    pub(super) adopt: Vec<PodRef>,
    pub(super) release: Vec<PodRef>,
}

/// Adopts orphans that match, releases what does not match any more.
pub(super) fn members(set: &Object<StatefulSetView>, owned: Vec<PodRef>, orphans: Vec<PodRef>) -> Members {
    let mut members = Members::default();
    let place = |pod: &PodRef| {
        let matches = set.selector.matches(&pod.header);
        ordinal_of(set.name(), pod.name()).filter(|_| matches)
    };
    let going = set.header.is_deleting();
    for pod in owned {
        match place(&pod) {
            Some(ordinal) => drop(members.pods.insert(ordinal, pod)),
            // A set that is being deleted releases no pod: the garbage collector finds its pods by their owner.
            None if !going => members.release.push(pod),
            None => {}
        }
    }
    for pod in orphans {
        if let Some(ordinal) = place(&pod).filter(|_| !going && !pod.header.is_deleting()) {
            members.adopt.push(pod.clone());
            members.pods.insert(ordinal, pod);
        }
    }
    members
}

/// The pod with this ordinal as its claims know it.
pub(super) fn user(ordinal: i32, pod: &PodRef) -> ClaimUser<'_> {
    ClaimUser {
        name: pod.name(),
        uid: &pod.uid().0,
        ordinal,
    }
}

/// Reports whether a pod runs and is ready.
pub(super) fn is_running_and_ready(pod: &PodRef) -> bool {
    pod.phase == Phase::Running && pod.ready
}

/// Time at which the next ready pod becomes available.
pub(super) fn next_available(snapshot: &Snapshot<'_>) -> Option<Timestamp> {
    let ready = snapshot.pods.values().filter(|pod| pod.ready);
    ready
        .filter_map(|pod| pod.available_at(snapshot.set.min_ready_seconds))
        .filter(|at| *at > snapshot.now)
        .min()
}
