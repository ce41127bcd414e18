//! Extended resources of a pod that classes of devices serve (KEP-5004, upstream's `extendeddynamicresources.go`).
//!
//! On a node that has such a resource from no device plugin the pod gets devices of the class. They are claimed by a claim
//! of the scheduler's, which is made before the pod is bound; in the attempt it has a name that no object can have. One that
//! an attempt before left is deleted first.

use super::Devices;
use super::objects::{ClaimSpec, ClaimedDevices, DeviceClaim, DeviceRequest, Request};
use crate::extended_requests::{ContainerRequests, ExtendedRequest, is_extended};
use crate::nodes::{NodeId, NodeTable};
use crate::pod::PodInfo;
use crate::rejection::Rejection;
use machinery_meta::ObjectKey;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The claim's name while it is no object.
const NAME: &str = "<extended-resources>";
/// Mark of claims that were made for extended resources.
pub(crate) const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
const EXACT_COUNT: &str = "ExactCount";

/// Classes by the extended resources that they serve.
pub(crate) type Served<'a> = BTreeMap<&'a str, &'a str>;

/// Extended resources of a pod, as far as devices are concerned.
#[derive(Debug)]
pub(crate) struct Special {
    /// The claim, as messages name it.
    pub(crate) key: ObjectKey,
    /// The claim that an attempt before left.
    pub(crate) left_over: Option<(ObjectKey, Arc<DeviceClaim>)>,
    /// Those that classes serve, with the class.
    served: BTreeMap<Box<str>, Box<str>>,
    /// Those that device plugins alone have.
    others: Vec<Box<str>>,
}

impl Special {
    /// `None` where no class serves any of the resources that the pod requests.
    pub(crate) fn of(pod: &PodInfo, devices: &Devices) -> Option<Self> {
        if !devices.serves(pod) {
            return None;
        }
        let requested = pod.shape.requests.scalars.iter();
        let requested = requested.filter(|(name, amount)| **amount != 0 && is_extended(name));
        let mut special = Self {
            key: ObjectKey::new(&*pod.key.namespace, NAME),
            left_over: devices.left_over(pod),
            served: BTreeMap::new(),
            others: Vec::new(),
        };
        for (name, _) in requested {
            match devices.classes.of_resource(name) {
                Some(class) => drop(special.served.insert(name.clone(), class.into())),
                None => special.others.push(name.clone()),
            }
        }
        Some(special)
    }

    /// The resources for which the node needs devices, or why it will not do.
    pub(crate) fn needed(&self, nodes: &NodeTable, node: NodeId) -> Result<Served<'_>, Rejection> {
        if self.left_over.is_some() {
            return Err(Rejection::unresolvable("cannot schedule extended resource claim"));
        }
        let allocatable = &nodes.allocatable_scalars[node];
        if self.others.iter().any(|name| !allocatable.contains_key(name)) {
            return Err(Rejection::unresolvable("cannot fit resource"));
        }
        let has_none = |name: &str| allocatable.get(name).is_none_or(|amount| *amount == 0);
        let served = self.served.iter().map(|(name, class)| (&**name, &**class));
        Ok(served.filter(|(name, _)| has_none(name)).collect())
    }
}

/// The name under which the devices of a pod's extended resources are assumed until the claim is an object.
pub(crate) fn assumed_key(pod: &PodInfo) -> ObjectKey {
    ObjectKey::new(&*pod.key.namespace, format!("{NAME}/{}", pod.uid()))
}

/// A request of the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewRequest {
    pub(crate) name: String,
    class: Box<str>,
    pub(crate) count: i64,
}

/// The request from which a container has a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mapping {
    container_name: Box<str>,
    resource_name: Box<str>,
    request_name: String,
}

/// The claim as it will be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NewClaim {
    pub(crate) requests: Vec<NewRequest>,
    pub(crate) mappings: Vec<Mapping>,
}

impl NewClaim {
    /// A request for each container that runs beside others; init containers that end use those of later containers, and
    /// one request for what the largest of them needs more (upstream's `createRequestsAndMappings`).
    pub(crate) fn of(containers: &[ContainerRequests], served: &Served<'_>) -> Self {
        let requested = containers.iter().flat_map(ContainerRequests::all);
        let requested: Vec<ExtendedRequest<'_>> = requested.collect();
        let mut claim = Self::default();
        for (resource, class) in served {
            let own = || requested.iter().filter(|own| own.resource == *resource);
            let long = own().filter(|own| !own.is_short);
            let long: Vec<(usize, NewRequest)> = long
                .map(|own| {
                    let made = own.requesting(class, own.count);
                    claim.mappings.push(own.from(&made.name));
                    (own.at, made)
                })
                .collect();
            claim.add_short(own().filter(|own| own.is_short), class, &long);
            claim.requests.extend(long.into_iter().map(|(_, made)| made));
        }
        claim.requests.sort_by(|one, other| one.name.cmp(&other.name));
        claim
    }

    /// Adds what init containers that end need.
    fn add_short<'r>(
        &mut self,
        all: impl Iterator<Item = &'r ExtendedRequest<'r>>,
        class: &str,
        long: &[(usize, NewRequest)],
    ) {
        let mut most: Option<NewRequest> = None;
        let mut names = BTreeSet::new();
        let mut mappings = Vec::new();
        for own in all {
            let mut had = 0_i64;
            for (_, made) in long.iter().filter(|(at, _)| *at >= own.at) {
                if had >= own.count {
                    break;
                }
                had = had.saturating_add(made.count);
                mappings.push(own.from(&made.name));
            }
            if had >= own.count {
                continue;
            }
            let made = own.requesting(class, own.count - had);
            mappings.push(own.from(&made.name));
            names.insert(made.name.clone());
            if most.as_ref().is_none_or(|most| most.count < made.count) {
                most = Some(made);
            }
        }
        let Some(most) = most else {
            return self.mappings.append(&mut mappings);
        };
        for own in mappings
            .iter_mut()
            .filter(|own| names.contains(&own.request_name))
        {
            own.request_name.clone_from(&most.name);
        }
        self.mappings.append(&mut mappings);
        self.requests.push(most);
    }

    /// The spec that devices are looked for by.
    pub(crate) fn spec(&self) -> ClaimSpec {
        let request = |own: &NewRequest| Request {
            name: own.name.as_str().into(),
            exactly: Some(DeviceRequest {
                device_class_name: own.class.clone(),
                allocation_mode: EXACT_COUNT.into(),
                count: own.count,
                ..DeviceRequest::default()
            }),
            ..Request::default()
        };
        ClaimSpec {
            devices: ClaimedDevices {
                requests: self.requests.iter().map(request).collect(),
                ..ClaimedDevices::default()
            },
        }
    }

    /// The same as the API has it.
    pub(crate) fn spec_value(&self) -> Value {
        let request = |own: &NewRequest| {
            let exactly =
                json!({"deviceClassName": own.class, "allocationMode": EXACT_COUNT, "count": own.count});
            json!({"name": own.name, "exactly": exactly})
        };
        let requests: Vec<Value> = self.requests.iter().map(request).collect();
        json!({"devices": {"requests": requests}})
    }
}

impl ExtendedRequest<'_> {
    fn requesting(&self, class: &str, count: i64) -> NewRequest {
        NewRequest {
            name: format!("container-{}-request-{}", self.at, self.place),
            class: class.into(),
            count,
        }
    }

    fn from(&self, request: &str) -> Mapping {
        Mapping {
            container_name: self.container.into(),
            resource_name: self.resource.into(),
            request_name: request.to_owned(),
        }
    }
}
