//! A pod goes where its volumes are: its claims must be there and bound, and the node within reach of their volumes.
//!
//! Nothing binds claims here: one that waits for its pod finds no volume.

use crate::framework::{ClusterEvents, Cycle, Filter, NodeNames, Plugin, Rejection, Scope};
use crate::nodes::NodeId;
use crate::object::NodeSelector;
use crate::pod::{PodClaim, PodInfo};
use crate::selector::node_selector_matches;
use crate::volumes::{Claim, Volumes};

#[derive(Debug)]
pub(super) struct VolumeBinding;

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::VOLUME
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_LABEL)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        let (pod, volumes) = (cycle.pod, &cycle.nodes.volumes);
        let claims = pod.claims.iter().map(|own| usable(pod, own, volumes));
        let claims = claims.collect::<Result<Vec<&Claim>, Rejection>>()?;
        if claims
            .iter()
            .any(|claim| !claim.bound && !volumes.waits_for_pod(claim))
        {
            let reason = "pod has unbound immediate PersistentVolumeClaims";
            return Err(Rejection::unresolvable(reason));
        }
        let missing = claims
            .iter()
            .find(|claim| claim.bound && volumes.volume(&claim.volume).is_none());
        match missing {
            Some(claim) => Err(Rejection::unresolvable(format!(
                "persistentvolume {:?} not found",
                claim.volume
            ))),
            None => Ok(None),
        }
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let (pod, volumes) = (cycle.pod, &cycle.nodes.volumes);
        let of_pod = || {
            pod.claims
                .iter()
                .filter_map(|own| volumes.claim(&pod.key.namespace, &own.name))
        };
        let waits = of_pod().any(|claim| !claim.bound);
        let affinities: Vec<&NodeSelector> = of_pod()
            .filter(|claim| claim.bound)
            .filter_map(|claim| volumes.volume(&claim.volume)?.as_ref())
            .collect();
        if !waits && affinities.is_empty() {
            return None;
        }
        cycle.attempt.worked(pod.claims.len());
        Some(Box::new(move |node: NodeId| {
            let (name, labels) = (&cycle.nodes.names[node], &cycle.nodes.labels[node]);
            let reached = affinities
                .iter()
                .all(|nodes| node_selector_matches(nodes, name, labels));
            let reasons = [
                (!reached, "node(s) didn't match PersistentVolume's node affinity"),
                (waits, "node(s) didn't find available persistent volumes to bind"),
            ];
            let reasons: Vec<_> = reasons
                .iter()
                .filter(|(is, _)| *is)
                .map(|(_, words)| (*words).into())
                .collect();
            if reasons.is_empty() {
                return Ok(());
            }
            Err(Rejection {
                reasons,
                unresolvable: true,
            })
        }))
    }
}

/// A claim of the pod that is there, and meant for it.
fn usable<'a>(pod: &PodInfo, own: &PodClaim, volumes: &'a Volumes) -> Result<&'a Claim, Rejection> {
    let PodClaim { name, ephemeral } = own;
    let Some(claim) = volumes.claim(&pod.key.namespace, name) else {
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
