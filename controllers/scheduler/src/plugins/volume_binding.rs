//! A pod goes where its volumes are, or where they can be made: of bound claims the node must be within reach, and for claims
//! that wait for their first pod a volume must be free, or the class must make one for the node.
//!
//! The answers come from [`PodVolumes`](crate::volumes::pod_volumes); the scheduler reserves what the chosen node gives, and
//! the pod is bound once its claims are.

use crate::config::args::{ShapePoint, VolumeBindingArgs, score_on};
use crate::framework::{ClusterEvents, Cycle, Filter, NodeNames, Plugin, Rejection, Scope};
use crate::nodes::NodeId;
use crate::volumes::pod_volumes::{OnNode, PodVolumes};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct VolumeBinding {
    /// Score by the share of a class that the claims use.
    shape: Vec<ShapePoint>,
}

impl VolumeBinding {
    pub(super) fn new(args: &VolumeBindingArgs) -> Self {
        Self {
            shape: args.shape.clone(),
        }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::CLAIM
            .and(ClusterEvents::VOLUME)
            .and(ClusterEvents::CLASS)
            .and(ClusterEvents::CSI_DRIVER)
            .and(ClusterEvents::CSI_CAPACITY)
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_LABEL)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        let sorted = cycle.attempt.volumes(cycle.nodes);
        sorted.as_ref().map(|_| None).map_err(Clone::clone)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let volumes = cycle.attempt.volumes(cycle.nodes).as_ref().ok()?;
        if volumes.is_indifferent() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let found = volumes.on(cycle.attempt, cycle.nodes, node);
            if found.reasons.is_empty() {
                return Ok(());
            }
            Err(Rejection {
                reasons: found.reasons.into_iter().map(Into::into).collect(),
                unresolvable: true,
            })
        }))
    }

    fn cluster_scores(&self, cycle: Cycle<'_>, feasible: &[NodeId]) -> Option<Vec<i64>> {
        let volumes = cycle.attempt.volumes(cycle.nodes).as_ref().ok()?;
        if volumes.waiting.is_empty() {
            return None;
        }
        let score = |node: &NodeId| {
            score(
                volumes,
                &volumes.on(cycle.attempt, cycle.nodes, *node),
                &self.shape,
            )
        };
        Some(feasible.iter().map(score).collect())
    }
}

/// The score of the share that is used of what the claims are given, as a mean over the classes. By upstream's default
/// shape volumes that fit closely are the worst, so that room is spread.
fn score(pod: &PodVolumes, found: &OnNode, shape: &[ShapePoint]) -> i64 {
    let request = |at: usize| {
        let request = pod.waiting[at].claim.request;
        request.map_or(0, |own| i128::from(own.units()))
    };
    let mut classes: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    for (at, volume) in &found.bindings {
        let (requested, capacity) = classes.entry(&volume.class).or_default();
        *requested += request(*at);
        *capacity += i128::from(volume.capacity.units());
    }
    if found.bindings.is_empty() {
        let tracked = found
            .provisions
            .iter()
            .filter_map(|(at, room)| Some((*at, (*room)?)));
        for (at, room) in tracked {
            let (requested, capacity) = classes.entry(&pod.waiting[at].claim.class).or_default();
            *requested += request(at);
            *capacity = i128::from(room);
        }
    }
    let count = classes.len() as i64;
    let rated = |(requested, capacity): &(i128, i128)| {
        let used = match (*requested, *capacity) {
            (requested, capacity) if capacity == 0 || requested > capacity => 100,
            (requested, capacity) => requested * 100 / capacity,
        };
        score_on(shape, i64::try_from(used).unwrap_or(100))
    };
    let sum: i64 = classes.values().map(rated).sum();
    // Half a point and more is rounded up.
    if count == 0 {
        0
    } else {
        (2 * sum + count) / (2 * count)
    }
}
