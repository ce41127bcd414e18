//! A pod as the scheduler keeps it: the decoded fields and what follows from them, computed once per change.

use crate::object::{NodeAffinity, Pod, PodSpec, Toleration, Volume};
use crate::resources::{Resources, is_sidecar, pod_requests, pod_requests_non_zero};
use crate::selector_counts::{Term, TermKind, terms_of};
use machinery_client::LongList;
use machinery_meta::ObjectKey;
use machinery_semantics::host_ports::HostPort;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that decides where a pod may go as far as single nodes are concerned. Pods of one deployment are
/// equal in it, and pods with equal shapes share one evaluation of the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Shape {
    pub requests: Resources,
    /// The requests that scoring assumes.
    pub scored_milli_cpu: i64,
    pub scored_memory: i64,
    pub node_name: Box<str>,
    pub node_selector: BTreeMap<Box<str>, Box<str>>,
    pub node_affinity: NodeAffinity,
    pub tolerations: LongList<Toleration>,
    pub ports: Vec<HostPort>,
    pub images: Vec<Box<str>>,
}

impl Shape {
    fn of(pod: &Pod) -> Self {
        let scored = pod_requests_non_zero(pod);
        Self {
            requests: pod_requests(pod),
            scored_milli_cpu: scored.milli_cpu,
            scored_memory: scored.memory,
            node_name: pod.spec.node_name.clone(),
            node_selector: pod.spec.node_selector.clone(),
            node_affinity: pod.spec.affinity.node_affinity.clone(),
            tolerations: pod.spec.tolerations.clone(),
            ports: host_ports(pod),
            images: images(pod),
        }
    }
}

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    pub name: Box<str>,
    /// It is made for this pod, and goes with it.
    pub ephemeral: bool,
}

/// A pod with its shape, its affinity terms and its claims.
#[derive(Debug)]
pub struct PodInfo {
    pub key: ObjectKey,
    pub pod: Pod,
    pub shape: Arc<Shape>,
    pub terms: Vec<(TermKind, Term)>,
    pub claims: Vec<PodClaim>,
}

impl PodInfo {
    /// What the shape and the terms hold is dropped from the pod itself.
    pub fn new(mut pod: Pod) -> Self {
        let key = ObjectKey::new(&*pod.metadata.namespace, &*pod.metadata.name);
        let shape = Arc::new(Shape::of(&pod));
        let terms = terms_of(&pod);
        let claims = claims(&pod);
        let spec = std::mem::take(&mut pod.spec);
        pod.spec = PodSpec {
            node_name: spec.node_name,
            scheduler_name: spec.scheduler_name,
            priority: spec.priority,
            preemption_policy: spec.preemption_policy,
            scheduling_gates: spec.scheduling_gates,
            topology_spread_constraints: spec.topology_spread_constraints,
            ..PodSpec::default()
        };
        Self {
            key,
            pod,
            shape,
            terms,
            claims,
        }
    }

    pub fn uid(&self) -> &str {
        &self.pod.metadata.uid
    }

    pub fn priority(&self) -> i32 {
        self.pod.spec.priority
    }

    pub fn node_name(&self) -> Option<&str> {
        Some(&*self.pod.spec.node_name).filter(|name| !name.is_empty())
    }
}

fn claims(pod: &Pod) -> Vec<PodClaim> {
    let of_volume = |volume: &Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(PodClaim {
            name: claim.claim_name.clone(),
            ephemeral: false,
        }),
        (None, Some(_)) => Some(PodClaim {
            name: format!("{}-{}", pod.metadata.name, volume.name).into(),
            ephemeral: true,
        }),
        (None, None) => None,
    };
    pod.spec.volumes.iter().filter_map(of_volume).collect()
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let sidecars = pod
        .spec
        .init_containers
        .iter()
        .filter(|container| is_sidecar(container));
    sidecars
        .chain(&pod.spec.containers)
        .flat_map(|container| &container.ports)
        .filter_map(|port| HostPort::new(&port.host_ip, &port.protocol, port.host_port))
        .collect()
}

/// Image names as nodes list them: with a tag.
fn images(pod: &Pod) -> Vec<Box<str>> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    containers
        .map(|container| normalized_image(&container.image))
        .collect()
}

fn normalized_image(name: &str) -> Box<str> {
    let tagged = name.rfind(':') > name.rfind('/') && name.contains(':');
    if tagged {
        name.into()
    } else {
        format!("{name}:latest").into()
    }
}
