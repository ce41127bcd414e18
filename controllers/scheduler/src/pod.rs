//! A pod as the scheduler keeps it: the decoded fields and what follows from them, computed once per change.

use crate::declared_features::DeclaredFeatures;
use crate::disks::Disks;
use crate::extended_requests::{ContainerRequests, extended_requests};
use crate::object::{Affinity, Labels, NodeAffinity, Pod, PodResourceClaim, PodSpec, Toleration, Volume};
use crate::pod_terms::{OwnedTerm, terms_of};
use crate::resources::{PodRequests, Resources, is_sidecar};
use machinery_client::{Folded, LongList};
use machinery_meta::ObjectKey;
use machinery_semantics::host_ports::HostPort;
use std::borrow::Cow;
use std::collections::HashMap;
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
    pub node_selector: Labels,
    pub node_affinity: Folded<NodeAffinity>,
    pub tolerations: LongList<Toleration>,
    pub ports: Vec<HostPort>,
    pub images: Vec<Box<str>>,
    pub needed_features: DeclaredFeatures,
}

impl Shape {
    fn of(pod: &Pod) -> Self {
        let requests = PodRequests::of(pod);
        let scored = requests.scored();
        Self {
            requests: requests.taken(),
            scored_milli_cpu: scored.milli_cpu,
            scored_memory: scored.memory,
            node_name: pod.spec.node_name.clone(),
            node_selector: pod.spec.node_selector.clone(),
            node_affinity: pod.spec.affinity.node_affinity.clone(),
            tolerations: pod.spec.tolerations.clone(),
            ports: host_ports(pod),
            images: images(pod),
            needed_features: DeclaredFeatures::needed(pod),
        }
    }
}

/// Bytes of JSON that take a step to decode.
pub const LONG_STEP: usize = 16;

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodClaim {
    pub name: Box<str>,
    /// It is made for this pod, and goes with it.
    pub ephemeral: bool,
}

/// A claim of devices that a pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceClaimName {
    Named(Box<str>),
    /// It was made for this pod.
    Made(Box<str>),
    /// None is needed after all.
    Unneeded,
    /// It is made for this pod, and is not there yet.
    Awaited,
    /// It is of no form that is known here; its name in the pod.
    Unknown(Box<str>),
}

/// A pod with its shape, its affinity terms, its claims and its disks.
#[derive(Debug)]
pub struct PodInfo {
    pub key: ObjectKey,
    pub pod: Pod,
    pub shape: Arc<Shape>,
    /// Terms of a short affinity; of a long one they are made on demand.
    short_terms: Vec<Arc<OwnedTerm>>,
    pub claims: Vec<PodClaim>,
    /// Requests of extended resources, container by container.
    pub extended: Box<[ContainerRequests]>,
    pub disks: Disks,
}

impl PodInfo {
    /// Makes the entry of a pod; fields that the shape and the terms hold are dropped from the pod itself.
    pub fn new(mut pod: Pod) -> Self {
        let key = ObjectKey::new(&*pod.metadata.namespace, &*pod.metadata.name);
        let shape = Arc::new(Shape::of(&pod));
        let affinity = Affinity {
            node_affinity: Folded::default(),
            ..std::mem::take(&mut pod.spec.affinity)
        };
        let is_long = long_bytes(&affinity) > 0;
        let short_terms = if is_long {
            Vec::new()
        } else {
            terms_of(&pod.metadata.namespace, &affinity)
        };
        let claims = claims(&pod);
        let extended = extended_requests(&pod);
        pod.status.container_statuses = Vec::new();
        pod.status.init_container_statuses = Vec::new();
        let disks = Disks::of(&pod.spec.volumes);
        let spec = std::mem::take(&mut pod.spec);
        pod.spec = PodSpec {
            node_name: spec.node_name,
            scheduler_name: spec.scheduler_name,
            priority: spec.priority,
            preemption_policy: spec.preemption_policy,
            scheduling_gates: spec.scheduling_gates,
            topology_spread_constraints: spec.topology_spread_constraints,
            resource_claims: spec.resource_claims,
            affinity: if is_long { affinity } else { Affinity::default() },
            ..PodSpec::default()
        };
        Self {
            key,
            pod,
            shape,
            short_terms,
            claims,
            extended,
            disks,
        }
    }

    /// Its affinity terms. Those of a long affinity are decoded at each call; an attempt keeps them.
    pub fn terms(&self) -> Cow<'_, [Arc<OwnedTerm>]> {
        if let Some(terms) = self.terms_if_short() {
            return Cow::Borrowed(terms);
        }
        Cow::Owned(terms_of(&self.pod.metadata.namespace, &self.pod.spec.affinity))
    }

    /// Its affinity terms, `None` where the affinity is long.
    pub fn terms_if_short(&self) -> Option<&[Arc<OwnedTerm>]> {
        (self.long_affinity() == 0).then_some(&self.short_terms)
    }

    /// The length of an affinity to pods that is kept as JSON, 0 where it is not.
    pub fn long_affinity(&self) -> usize {
        long_bytes(&self.pod.spec.affinity)
    }

    /// Items of its long lists that may be compared with each node or pod, as far as their length says.
    pub fn long_items(&self) -> usize {
        let nodes = self.shape.node_affinity.json_bytes();
        let spread = self.pod.spec.topology_spread_constraints.json_bytes();
        let bytes = self.long_affinity() + nodes.unwrap_or(0) + spread.unwrap_or(0);
        bytes / LONG_STEP
    }

    /// Steps that making its terms takes.
    pub fn term_steps(&self) -> usize {
        self.short_terms.len() + self.long_affinity() / LONG_STEP
    }

    /// Reports whether both have the same terms.
    pub fn has_terms_of(&self, other: &Self) -> bool {
        self.short_terms == other.short_terms && self.pod.spec.affinity == other.pod.spec.affinity
    }

    /// Reports whether it names the claim, which is of its namespace.
    pub fn uses_claim(&self, claim: &ObjectKey) -> bool {
        self.key.namespace == claim.namespace && self.claims.iter().any(|own| *own.name == *claim.name)
    }

    pub fn has_device_claims(&self) -> bool {
        let claims = &self.pod.spec.resource_claims;
        claims.json_bytes().is_some() || !claims.get().is_empty()
    }

    /// Reports whether devices that come free may help it.
    pub fn may_use_devices(&self) -> bool {
        self.has_device_claims() || !self.extended.is_empty()
    }

    /// The claims of devices that it names.
    pub fn device_claims(&self) -> Vec<DeviceClaimName> {
        let made = self.pod.status.resource_claim_statuses.get();
        let made: HashMap<&str, Option<&Box<str>>> = made
            .iter()
            .map(|own| (&*own.name, own.resource_claim_name.as_ref()))
            .collect();
        let name = |own: &PodResourceClaim| match own {
            PodResourceClaim {
                resource_claim_name: Some(name),
                ..
            } => DeviceClaimName::Named(name.clone()),
            PodResourceClaim {
                resource_claim_template_name: Some(_),
                ..
            } => match made.get(&*own.name) {
                Some(Some(name)) => DeviceClaimName::Made((*name).clone()),
                Some(None) => DeviceClaimName::Unneeded,
                None => DeviceClaimName::Awaited,
            },
            _ => DeviceClaimName::Unknown(own.name.clone()),
        };
        self.pod.spec.resource_claims.get().iter().map(name).collect()
    }

    /// Reports whether it names the claim of devices, which is of its namespace.
    pub fn uses_device_claim(&self, claim: &ObjectKey) -> bool {
        use DeviceClaimName::{Made, Named};
        let is_own = |own: DeviceClaimName| matches!(own, Named(name) | Made(name) if *name == *claim.name);
        self.key.namespace == claim.namespace
            && self.has_device_claims()
            && self.device_claims().into_iter().any(is_own)
    }

    /// Reports whether both name the same claims of devices.
    pub fn has_device_claims_of(&self, other: &Self) -> bool {
        let (own, other) = (&self.pod, &other.pod);
        own.spec.resource_claims == other.spec.resource_claims
            && own.status.resource_claim_statuses == other.status.resource_claim_statuses
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

fn long_bytes(affinity: &Affinity) -> usize {
    let both = [&affinity.pod_affinity, &affinity.pod_anti_affinity];
    both.into_iter().filter_map(Folded::json_bytes).sum()
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

/// Images of containers and of volumes, by the names that nodes list: with a tag.
fn images(pod: &Pod) -> Vec<Box<str>> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let volumes = pod.spec.volumes.iter().filter_map(|own| own.image.as_ref());
    containers
        .map(|container| &container.image)
        .chain(volumes.map(|own| &own.reference))
        .map(|name| normalized_image(name))
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
