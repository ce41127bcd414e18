//! A pod's claims, sorted once per attempt, and what becomes of them on a node.

use super::matching::{Candidates, reaches};
use super::objects::{Class, Volume};
use super::{Claim, Volumes};
use crate::attempt::Attempt;
use crate::nodes::{NodeId, NodeTable};
use crate::object::Labels;
use crate::pod::{PodClaim, PodInfo};
use crate::rejection::Rejection;
use crate::selector::labels_match;
use machinery_meta::ObjectKey;
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
pub(crate) const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
pub(crate) const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
pub(crate) const VOLUME_MISSING: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// A claim that is bound once the pod has a node.
#[derive(Debug)]
pub(crate) struct WaitingClaim {
    pub(crate) key: ObjectKey,
    pub(crate) claim: Arc<Claim>,
    class: Arc<Class>,
    /// Absent where a node was selected before: its volume is being made.
    candidates: Option<Candidates>,
}

/// The claims of a pod.
#[derive(Debug, Default)]
pub(crate) struct PodVolumes {
    /// Volumes of those that are bound; `None` for one that is not there.
    bound: Vec<Option<Arc<Volume>>>,
    /// Claims that wait for the pod, in its order.
    pub(crate) waiting: Vec<WaitingClaim>,
    /// Places in `waiting` of those that may have a volume that is there, the smallest first.
    by_size: Vec<usize>,
}

/// Outcome of a pod's waiting claims on a node.
#[derive(Debug, Default)]
pub(crate) struct OnNode {
    /// Reasons why the node is unsuitable; empty if it is suitable.
    pub(crate) reasons: Vec<&'static str>,
    /// Claims, by place in [`PodVolumes::waiting`], and their volumes.
    pub(crate) bindings: Vec<(usize, Arc<Volume>)>,
    /// Claims whose volumes are to be made, and the bytes that the node has for them where that is tracked.
    pub(crate) provisions: Vec<(usize, Option<i64>)>,
}

impl PodVolumes {
    /// Sorts the claims, or says why none of the nodes will do.
    pub(crate) fn of(attempt: &Attempt, volumes: &Volumes) -> Result<Self, Rejection> {
        let pod = attempt.pod();
        let mut found = Self::default();
        let mut immediate = false;
        let mut seen = HashSet::new();
        for own in &pod.claims {
            let key = ObjectKey::new(&*pod.key.namespace, &*own.name);
            let claim = usable(pod, own, &key, volumes)?;
            attempt.worked(1);
            if claim.bound {
                found.bound.push(volumes.volume(&claim.volume).cloned());
                continue;
            }
            let class = volumes.class(&claim.class);
            let class = class.filter(|class| class.waits == Some(true) && claim.volume.is_empty());
            match class {
                Some(_) if seen.contains(&key) => {}
                Some(class) => {
                    seen.insert(key.clone());
                    let class = Arc::clone(class);
                    found
                        .waiting
                        .push(WaitingClaim::new(attempt, key, claim, class, volumes));
                }
                None => immediate = true,
            }
        }
        if immediate {
            let reason = "pod has unbound immediate PersistentVolumeClaims";
            return Err(Rejection::unresolvable(reason));
        }
        let with_choice = |at: &usize| found.waiting[*at].candidates.is_some();
        found.by_size = (0..found.waiting.len()).filter(with_choice).collect();
        let size = |at: &usize| found.waiting[*at].claim.request.unwrap_or_default();
        found.by_size.sort_by_key(size);
        Ok(found)
    }

    /// Nothing of it depends on the node.
    pub(crate) fn is_indifferent(&self) -> bool {
        let anywhere = |volume: &Option<Arc<Volume>>| volume.as_ref().is_some_and(|own| own.nodes.is_none());
        self.waiting.is_empty() && self.bound.iter().all(anywhere)
    }

    /// Looks at one node.
    pub(crate) fn on(&self, attempt: &Attempt, nodes: &NodeTable, node: NodeId) -> OnNode {
        attempt.worked(self.bound.len() + self.waiting.len());
        let mut found = OnNode::default();
        let unreached = self.bound.iter().find_map(|volume| match volume {
            None => Some(VOLUME_MISSING),
            Some(volume) => (!reaches(volume, nodes, node)).then_some(NODE_CONFLICT),
        });
        let unbound = self.match_claims(attempt, nodes, node, &mut found);
        // In upstream's order.
        let all = [NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING];
        let is = |reason: &&&str| Some(**reason) == unreached || Some(**reason) == unbound;
        found.reasons = all.iter().filter(is).copied().collect();
        found
    }

    fn match_claims(
        &self,
        attempt: &Attempt,
        nodes: &NodeTable,
        node: NodeId,
        found: &mut OnNode,
    ) -> Option<&'static str> {
        let mut to_make = Vec::new();
        for (at, own) in self.waiting.iter().enumerate() {
            match &own.claim.selected_node {
                Some(selected) if *selected != nodes.names[node] => return Some(BIND_CONFLICT),
                Some(_) => to_make.push(at),
                None => {}
            }
        }
        let mut taken = Vec::new();
        for at in &self.by_size {
            let candidates = self.waiting[*at].candidates.as_ref();
            let best = candidates.and_then(|own| own.best(attempt, nodes, node, &taken));
            match best {
                Some(volume) => {
                    taken.push(Arc::clone(&volume));
                    found.bindings.push((*at, volume));
                }
                None => to_make.push(*at),
            }
        }
        let (labels, volumes) = (&nodes.labels[node], &nodes.volumes);
        for at in to_make {
            let own = &self.waiting[at];
            if !own.class.provisions() || !own.class.reaches(labels) {
                return Some(BIND_CONFLICT);
            }
            match own.room(attempt, volumes, labels) {
                Room::None => return Some(NOT_ENOUGH_SPACE),
                Room::Untracked => found.provisions.push((at, None)),
                Room::Of(total) => found.provisions.push((at, Some(total))),
            }
        }
        None
    }
}

/// Room for a volume that is to be made.
enum Room {
    None,
    Untracked,
    Of(i64),
}

impl WaitingClaim {
    fn new(
        attempt: &Attempt,
        key: ObjectKey,
        claim: &Arc<Claim>,
        class: Arc<Class>,
        volumes: &Volumes,
    ) -> Self {
        let candidates = claim
            .selected_node
            .is_none()
            .then(|| Candidates::of(attempt, &key, claim, volumes.of_class(&claim.class)));
        Self {
            key,
            claim: Arc::clone(claim),
            class,
            candidates,
        }
    }

    /// Room by the CSIStorageCapacity objects of the class, where its driver keeps them.
    fn room(&self, attempt: &Attempt, volumes: &Volumes, labels: &Labels) -> Room {
        let tracked = volumes.driver(&self.class.provisioner);
        let tracked = tracked.is_some_and(|driver| driver.tracks_capacity);
        let Some(request) = self.claim.request.filter(|_| tracked) else {
            return Room::Untracked;
        };
        let mut steps = 0;
        let enough = volumes.capacities().inspect(|_| steps += 1).find(|one| {
            one.class == self.claim.class
                && one.limit.is_some_and(|limit| limit >= request.units())
                && labels_match(one.nodes.as_ref(), labels)
        });
        let room = enough.map_or(Room::None, |one| Room::Of(one.total.unwrap_or(0)));
        attempt.worked(steps);
        room
    }
}

/// A claim of the pod that is there, and meant for it.
fn usable<'a>(
    pod: &PodInfo,
    own: &PodClaim,
    key: &ObjectKey,
    volumes: &'a Volumes,
) -> Result<&'a Arc<Claim>, Rejection> {
    let PodClaim { name, ephemeral } = own;
    let Some(claim) = volumes.claim(key) else {
        return Err(Rejection::unresolvable(if *ephemeral {
            format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
        } else {
            format!("persistentvolumeclaim {name:?} not found")
        }));
    };
    let refused = if claim.lost {
        let volume = &claim.volume;
        Some(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ))
    } else if claim.deleting {
        Some(format!("persistentvolumeclaim {name:?} is being deleted"))
    } else if *ephemeral && *claim.owner != *pod.uid() {
        let (namespace, pod) = (&pod.key.namespace, &pod.key.name);
        Some(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)"
        ))
    } else {
        None
    };
    refused.map_or(Ok(claim), |reason| Err(Rejection::unresolvable(reason)))
}
