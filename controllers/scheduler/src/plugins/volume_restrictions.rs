//! Volumes that one pod alone may have: claims of the access mode ReadWriteOncePod, and disks that two pods on a node cannot
//! share.

use crate::framework::{ClusterEvents, Cycle, Filter, NodeNames, Plugin, Rejection, Scope};
use crate::nodes::NodeId;
use crate::pod::PodInfo;
use crate::volumes::Volumes;
use crate::volumes::objects::AccessModes;
use machinery_meta::ObjectKey;

#[derive(Debug)]
pub(super) struct VolumeRestrictions;

const DISK_CONFLICT: &str = "node(s) had no available disk";
const POD_CONFLICT: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::CLAIM_FREED
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::CLAIM)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        let missing = keys(cycle.pod).find(|key| cycle.nodes.volumes.claim(key).is_none());
        missing.map_or(Ok(None), |key| {
            let name = &key.name;
            Err(Rejection::unresolvable(format!(
                "persistentvolumeclaim {name:?} not found"
            )))
        })
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let Cycle { pod, nodes, attempt } = cycle;
        attempt.worked(pod.claims.len());
        let is_taken = is_taken(pod, &nodes.volumes);
        if !is_taken && pod.disks.is_empty() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let shares = |other: &PodInfo| {
                attempt.worked(1 + pod.disks.comparisons(&other.disks));
                pod.disks.conflict_with(&other.disks)
            };
            if nodes.pods[node].iter().any(|other| shares(other)) {
                return Err(Rejection::unschedulable(DISK_CONFLICT));
            }
            if is_taken {
                return Err(Rejection::unschedulable(POD_CONFLICT));
            }
            Ok(())
        }))
    }
}

/// Claims that are not made for the pod itself.
fn keys(pod: &PodInfo) -> impl Iterator<Item = ObjectKey> {
    let own = pod.claims.iter().filter(|own| !own.ephemeral);
    own.map(|own| ObjectKey::new(&*pod.key.namespace, &*own.name))
}

/// Reports whether a pod on a node has a claim that the pod must have alone.
fn is_taken(pod: &PodInfo, volumes: &Volumes) -> bool {
    let alone = |key: &ObjectKey| {
        let claim = volumes.claim(key);
        claim.is_some_and(|claim| claim.access_modes.contain(AccessModes::READ_WRITE_ONCE_POD))
    };
    keys(pod).any(|key| volumes.is_used(&key) && alone(&key))
}
