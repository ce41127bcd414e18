//! A node takes as many volumes of a CSI driver as its CSINode says.
//!
//! Counted are volumes of pods on the node and volumes that are attached to it, each once. Drivers inside of Kubernetes that
//! moved to CSI are not looked at.

use crate::framework::{ClusterEvents, Cycle, Filter, Plugin, Rejection, Scope};
use crate::nodes::NodeId;
use crate::pod::PodInfo;
use crate::volumes::objects::CsiSource;
use crate::volumes::{Claim, CsiNode, Volumes};
use machinery_meta::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct NodeVolumeLimits;

const TOO_MANY: &str = "node(s) exceed max volume count";

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn requeue_on(&self) -> ClusterEvents {
        ClusterEvents::CSI_NODE
            .and(ClusterEvents::CLAIM)
            .and(ClusterEvents::VOLUMES_GONE)
            .and(ClusterEvents::ATTACHMENT_GONE)
    }

    fn filter<'a>(&self, cycle: Cycle<'a>) -> Option<Box<dyn Filter + 'a>> {
        let volumes = &cycle.nodes.volumes;
        cycle.attempt.worked(cycle.pod.claims.len());
        let wanted: BTreeSet<CsiSource> = sources(cycle.pod, volumes).collect();
        if wanted.is_empty() {
            return None;
        }
        Some(Box::new(move |node: NodeId| check(cycle, node, &wanted)))
    }
}

fn check(cycle: Cycle<'_>, node: NodeId, wanted: &BTreeSet<CsiSource>) -> Result<(), Rejection> {
    let volumes = &cycle.nodes.volumes;
    let here = volumes.csi_node(&cycle.nodes.names[node]);
    for own in wanted {
        let driver = &own.driver;
        let must = volumes.driver(driver).is_some_and(|own| own.must_be_installed);
        if must && !here.is_some_and(|node| node.has(driver)) {
            return Err(Rejection::unschedulable(format!(
                "{driver} CSI driver is not installed on the node"
            )));
        }
    }
    let limit = |source: &CsiSource| here.and_then(|node: &CsiNode| node.limit(&source.driver));
    if wanted.iter().all(|own| limit(own).is_none()) {
        return Ok(());
    }
    let there = on_node(cycle, node);
    let mut counts: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for own in wanted.iter().filter(|own| !there.of_pods.contains(*own)) {
        counts.entry(&own.driver).or_default().0 += 1;
    }
    for own in there.of_pods.union(&there.attached) {
        counts.entry(&own.driver).or_default().1 += 1;
    }
    let exceeds = |own: &CsiSource| {
        let (new, old) = counts.get(&*own.driver).copied().unwrap_or_default();
        let limit = limit(own).map(i64::from);
        new > 0 && limit.is_some_and(|limit| old + new > limit)
    };
    if wanted.iter().any(exceeds) {
        return Err(Rejection::unschedulable(TOO_MANY));
    }
    Ok(())
}

/// Volumes on a node.
struct There {
    of_pods: BTreeSet<CsiSource>,
    attached: BTreeSet<CsiSource>,
}

fn on_node(cycle: Cycle<'_>, node: NodeId) -> There {
    let (nodes, volumes) = (cycle.nodes, &cycle.nodes.volumes);
    let pods = &nodes.pods[node];
    let of_pods: BTreeSet<CsiSource> = pods.iter().flat_map(|pod| sources(pod, volumes)).collect();
    let attached = volumes.attached_to(&nodes.names[node]).filter_map(|own| {
        let csi = volumes.volume(&own.volume)?.csi.as_ref()?;
        (!own.driver.is_empty()).then(|| CsiSource {
            driver: own.driver.clone(),
            volume_handle: csi.volume_handle.clone(),
        })
    });
    let attached: BTreeSet<CsiSource> = attached.collect();
    let claims: usize = pods.iter().map(|pod| pod.claims.len()).sum();
    cycle.attempt.worked(pods.len() + claims + attached.len());
    There { of_pods, attached }
}

/// Volumes of CSI drivers that a pod has.
fn sources(pod: &PodInfo, volumes: &Volumes) -> impl Iterator<Item = CsiSource> {
    pod.claims.iter().filter_map(|own| {
        let key = ObjectKey::new(&*pod.key.namespace, &*own.name);
        let claim = volumes.claim(&key)?;
        let foreign = own.ephemeral && *claim.owner != *pod.uid();
        if foreign {
            return None;
        }
        source_of(&key, claim, volumes)
    })
}

/// A claim's volume. One that is still to be made has the name of its claim, which no driver gives.
fn source_of(key: &ObjectKey, claim: &Claim, volumes: &Volumes) -> Option<CsiSource> {
    if let Some(volume) = volumes.volume(&claim.volume) {
        let named = |own: &&CsiSource| !own.driver.is_empty() && !own.volume_handle.is_empty();
        return volume.csi.as_ref().filter(named).cloned();
    }
    let class = volumes.class(&claim.class)?;
    Some(CsiSource {
        driver: class.provisioner.clone(),
        volume_handle: format!("\0{}/{}", key.namespace, key.name).into(),
    })
    .filter(|own| !own.driver.is_empty())
}
