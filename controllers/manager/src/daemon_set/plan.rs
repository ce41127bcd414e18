//! Plan of the pods to create and delete so that each node has one: `Snapshot` is exactly what a decision may read,
//! `Changes` are a value.

use super::eligibility::Eligibility;
use super::new_pod::TEMPLATE_GENERATION;
use crate::history::revisions::POD_HASH;
use crate::views::{DaemonSetView, Phase, PodView};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery_client::Object;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A set as plans handle it.
pub(super) type SetRef = Arc<Object<DaemonSetView>>;
/// A pod as plans handle it.
pub(super) type PodRef = Arc<Object<PodView>>;

/// Pods created in one round at most, and deleted.
pub(super) const BURST: usize = 250;

/// Input of a plan.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) set: SetRef,
    /// The hash of the present template's revision.
    pub(super) hash: String,
    pub(super) nodes: BTreeMap<String, Eligibility>,
    /// Pods that are the set's.
    pub(super) pods: Vec<PodRef>,
    /// Nodes whose failed pods stay for now, and until when.
    pub(super) held: BTreeMap<String, Timestamp>,
    pub(super) now: Timestamp,
}

/// Changes to carry out.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<PodRef>,
    /// Time at which a failed pod that stays for now is reconciled again.
    pub(super) requeue_at: Option<Timestamp>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

impl Snapshot {
    /// The pods of each node, bound ones first, then the oldest. Those that have ended and are being deleted count no
    /// more; one that names no node is on none.
    pub(super) fn by_node(&self) -> BTreeMap<&str, Vec<&PodRef>> {
        let mut by_node: BTreeMap<&str, Vec<&PodRef>> = BTreeMap::new();
        let counts =
            |pod: &&PodRef| !(pod.target_node.is_empty() || pod.is_terminal() && pod.header.is_deleting());
        for pod in self.pods.iter().filter(counts) {
            by_node.entry(&pod.target_node).or_default().push(pod);
        }
        for pods in by_node.values_mut() {
            let rank = |pod: &PodRef| (pod.node.is_empty(), pod.created);
            pods.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.name().cmp(b.name())));
        }
        by_node
    }

    /// Reports whether a pod is of the present template.
    pub(super) fn is_updated(&self, pod: &PodRef) -> bool {
        self.has_hash(pod)
            || self
                .set
                .template_generation
                .is_some_and(|own| pod.header.label(TEMPLATE_GENERATION) == Some(own.to_string().as_str()))
    }

    fn has_hash(&self, pod: &PodRef) -> bool {
        !self.hash.is_empty() && pod.header.label(POD_HASH) == Some(&self.hash)
    }

    pub(super) fn is_available(&self, pod: &PodRef) -> bool {
        pod.is_available(self.set.min_ready_seconds, self.now)
    }

    pub(super) fn should_run(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|own| own.should_run)
    }

    pub(super) fn desired(&self) -> usize {
        self.nodes.values().filter(|own| own.should_run).count()
    }

    /// A number of nodes, or a percentage of so many, rounded up.
    pub(super) fn scaled(value: Option<&IntOrString>, total: usize) -> usize {
        let total = i32::try_from(total).unwrap_or(i32::MAX);
        usize::try_from(crate::views::deployment::resolve(value, total, true)).unwrap_or(0)
    }

    fn may_surge(&self) -> bool {
        let surge = self.set.rolling.as_ref().and_then(|own| own.max_surge.as_ref());
        Self::scaled(surge, 1) > 0
    }
}

/// Keeps one running pod on each node that should have one, and none on the others.
pub(super) fn keep(snapshot: &Snapshot) -> Changes {
    let mut changes = Changes::default();
    let by_node = snapshot.by_node();
    for (node, eligible) in &snapshot.nodes {
        let pods = by_node.get(node.as_str());
        match pods {
            None if eligible.should_run => changes.create.push(node.clone()),
            None => {}
            Some(pods) if eligible.should_continue => keep_one(snapshot, node, pods, &mut changes),
            Some(pods) => {
                let staying = pods.iter().filter(|pod| !pod.header.is_deleting());
                changes.delete.extend(staying.map(|pod| (*pod).clone()));
            }
        }
    }
    // A pod that is for a node that is no more is never bound, and the pod garbage collector sees no node of it.
    let astray = by_node
        .iter()
        .filter(|(node, _)| !snapshot.nodes.contains_key(**node));
    let unbound = astray.flat_map(|(_, pods)| pods.iter().filter(|pod| pod.node.is_empty()));
    // One that is being deleted already needs no second deletion.
    let unbound = unbound.filter(|pod| !pod.header.is_deleting());
    changes.delete.extend(unbound.map(|pod| (*pod).clone()));
    changes
}

/// Deletes what has ended, and what is one too many.
fn keep_one(snapshot: &Snapshot, node: &str, pods: &[&PodRef], changes: &mut Changes) {
    let mut running = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.header.is_deleting()) {
        match (pod.phase, snapshot.held.get(node)) {
            (Phase::Failed, Some(until)) => {
                let earlier = changes.requeue_at.map_or(*until, |own| own.min(*until));
                changes.requeue_at = Some(earlier);
            }
            (Phase::Failed | Phase::Succeeded, _) => changes.delete.push((*pod).clone()),
            _ => running.push(*pod),
        }
    }
    if !snapshot.may_surge() {
        changes.delete.extend(running.into_iter().skip(1).cloned());
    } else if running.len() > 1 {
        keep_old_and_new(snapshot, &running, changes);
    } else if running.is_empty() && snapshot.should_run(node) {
        changes.create.push(node.to_owned());
    }
}

/// Two pods stay while the new one is not available and the old one is ready; of two that are not ready, the new one.
fn keep_old_and_new(snapshot: &Snapshot, running: &[&PodRef], changes: &mut Changes) {
    let (mut new, mut old) = (None, None);
    for pod in running {
        let place = if snapshot.has_hash(pod) {
            &mut new
        } else {
            &mut old
        };
        match place {
            None => *place = Some(*pod),
            Some(_) => changes.delete.push((*pod).clone()),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!old.ready || snapshot.is_available(new))
    {
        changes.delete.push(old.clone());
    }
}
