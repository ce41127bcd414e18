//! A pod goes to the zone and region that labels of its volumes name, on nodes that say where they are.

use crate::framework::{ClusterEvents, Cycle, Filter, NodeNames, Plugin, Rejection, Scope};
use crate::nodes::NodeId;
use crate::object::Labels;
use crate::volumes::objects::{Volume, ZONE_LABELS};
use machinery_meta::ObjectKey;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct VolumeZone;

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::CLAIM
            .and(ClusterEvents::VOLUME_ZONE)
            .and(ClusterEvents::CLASS_WAITS)
            .and(ClusterEvents::NODE_ADD)
            .and(ClusterEvents::NODE_LABEL)
    }

    fn node_names(&self, cycle: Cycle<'_>) -> Result<NodeNames, Rejection> {
        volumes(cycle).map(|_| None)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let zones: Vec<_> = volumes(cycle).ok()?.into_iter().flat_map(Volume::zones).collect();
        if zones.is_empty() {
            return None;
        }
        Some(Box::new(move |node: NodeId| {
            let labels = &cycle.nodes.labels[node];
            cycle.attempt.worked(zones.len());
            if is_anywhere(labels) || zones.iter().all(|(label, zones)| is_in(labels, label, zones)) {
                return Ok(());
            }
            Err(Rejection::unresolvable("node(s) had no available volume zone"))
        }))
    }
}

/// Reports whether the node has no label of its zone or region.
fn is_anywhere(labels: &Labels) -> bool {
    ZONE_LABELS.iter().all(|label| labels.get(label).is_none())
}

fn is_in(labels: &Labels, label: &str, zones: &BTreeSet<Box<str>>) -> bool {
    // Nodes may have the newer label alone.
    let newer = match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        label => label,
    };
    let value = labels.get(label).or_else(|| labels.get(newer));
    value.is_some_and(|value| zones.contains(value))
}

/// Volumes of the pod's bound claims; claims that wait for the pod have none yet.
fn volumes<'a>(cycle: Cycle<'a>) -> Result<Vec<&'a Volume>, Rejection> {
    let known = &cycle.nodes.volumes;
    let mut volumes = Vec::new();
    cycle.attempt.worked(cycle.pod.claims.len());
    for own in cycle.pod.claims.iter().filter(|own| !own.ephemeral) {
        let name = &own.name;
        let key = ObjectKey::new(&*cycle.pod.key.namespace, &**name);
        let refused = |reason: String| Err(Rejection::unresolvable(reason));
        let Some(claim) = known.claim(&key) else {
            return refused(format!("persistentvolumeclaim {name:?} not found"));
        };
        let (volume, class) = (&claim.volume, &claim.class);
        if !volume.is_empty() {
            match known.volume(volume) {
                Some(volume) => volumes.push(&**volume),
                None => return refused(format!("persistentvolume {volume:?} not found")),
            }
            continue;
        }
        if class.is_empty() {
            return refused("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
        }
        match known.class(class).map(|class| class.waits) {
            None => return refused(format!("storageclass.storage.k8s.io {class:?} not found")),
            Some(None) => return refused(format!("VolumeBindingMode not set for StorageClass {class:?}")),
            Some(Some(true)) => {}
            Some(Some(false)) => return refused("PersistentVolume had no name".to_owned()),
        }
    }
    Ok(volumes)
}
