//! A pod's claims of devices, sorted once per attempt, and what becomes of them on a node.

use super::Devices;
use super::allocator::{Available, Budget, Refusal, Solution, Surroundings, Wanted, allocate};
use super::extended::{NewClaim, Special};
use super::objects::{ClaimSpec, ClaimStatus, DeviceClaim};
use crate::attempt::Attempt;
use crate::config::args::DynamicResourcesArgs;
use crate::nodes::{NodeId, NodeTable};
use crate::pod::{DeviceClaimName, PodInfo};
use crate::rejection::Rejection;
use crate::selector::node_selector_matches;
use machinery_meta::ObjectKey;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A claim that the pod names.
#[derive(Debug)]
pub(crate) struct ClaimOfPod {
    pub(crate) key: ObjectKey,
    pub(crate) claim: Arc<DeviceClaim>,
    spec: OnceCell<ClaimSpec>,
    status: OnceCell<ClaimStatus>,
}

impl ClaimOfPod {
    fn spec(&self, attempt: &Attempt) -> &ClaimSpec {
        self.claim
            .spec
            .get_once(&self.spec, |bytes| attempt.worked(bytes))
    }

    pub(crate) fn status(&self) -> &ClaimStatus {
        self.claim.status.get_once(&self.status, |_| {})
    }
}

/// The claims of a pod, each once.
#[derive(Debug, Default)]
pub(crate) struct PodDevices {
    pub(crate) claims: Vec<ClaimOfPod>,
    /// Extended resources that classes of devices serve.
    special: Option<Special>,
    available: Available,
    budget: Budget,
    /// Claims whose devices a node does not reach, by place.
    unavailable: RefCell<BTreeSet<usize>>,
    /// Scores of the nodes that have devices.
    scores: RefCell<HashMap<NodeId, i64>>,
    checked: RefCell<HashMap<NodeId, Result<(), Rejection>>>,
    /// Claims, by place, whose devices will not be ready: no node will do.
    unfit: BTreeSet<usize>,
    /// The error that ends the attempt: no node is looked at after that.
    error: OnceCell<String>,
}

/// The claims that the pod names, or why it cannot be tried (upstream's `foreachPodResourceClaim`).
pub(crate) fn claims_of(
    pod: &PodInfo,
    devices: &Devices,
) -> Result<Vec<(ObjectKey, Arc<DeviceClaim>)>, String> {
    let mut found: Vec<(ObjectKey, Arc<DeviceClaim>)> = Vec::new();
    let mut known: HashSet<Box<str>> = HashSet::new();
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    for own in pod.device_claims() {
        let (claim_name, is_made) = match own {
            DeviceClaimName::Named(own) => (own, false),
            DeviceClaimName::Made(own) => (own, true),
            DeviceClaimName::Unneeded => continue,
            DeviceClaimName::Awaited => {
                return Err(format!(
                    "pod \"{namespace}/{name}\": ResourceClaim not created yet"
                ));
            }
            DeviceClaimName::Unknown(own) => {
                return Err(format!(
                    "pod \"{namespace}/{name}\", spec.resourceClaim {own:?}: none of the supported fields are set"
                ));
            }
        };
        let key = ObjectKey::new(&**namespace, &*claim_name);
        let claim = devices
            .claim(&key)
            .ok_or_else(|| format!("could not find v1.ResourceClaim \"{key}\""))?;
        if claim.deleting {
            return Err(format!("resourceclaim {claim_name:?} is being deleted"));
        }
        if is_made && *claim.owner != *pod.uid() {
            return Err(format!(
                "ResourceClaim {key} was not created for Pod {namespace}/{name} (Pod is not owner)"
            ));
        }
        if known.insert((*claim_name).into()) {
            found.push((key, Arc::clone(claim)));
        }
    }
    Ok(found)
}

impl PodDevices {
    /// Sorts the claims, or says why none of the nodes will do.
    pub(crate) fn of(
        attempt: &Attempt,
        devices: &Devices,
        args: DynamicResourcesArgs,
    ) -> Result<Self, Rejection> {
        let pod = attempt.pod();
        if !pod.may_use_devices() {
            return Ok(Self::default());
        }
        let claims = claims_of(pod, devices).map_err(Rejection::unresolvable)?;
        attempt.worked(claims.len() + pod.extended.len());
        let claims = claims.into_iter().map(|(key, claim)| ClaimOfPod {
            key,
            claim,
            spec: OnceCell::new(),
            status: OnceCell::new(),
        });
        let mut found = Self {
            claims: claims.collect(),
            special: Special::of(pod, devices),
            budget: Budget::of_timeout(args.filter_timeout),
            ..Self::default()
        };
        for (at, own) in found.claims.iter().enumerate() {
            own.check(attempt, devices).map_err(Rejection::unresolvable)?;
            if own.status().is_unfit(args.binding_timeout, devices.wall_time) {
                found.unfit.insert(at);
            }
        }
        Ok(found)
    }

    /// The error by which the search for devices ended the attempt, if one did.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    /// Nothing of it depends on the node.
    pub(crate) fn is_indifferent(&self) -> bool {
        let is_anywhere = |own: &ClaimOfPod| {
            let allocation = own.status().allocation.as_ref();
            allocation.is_some_and(|own| own.node_selector.is_none())
        };
        self.special.is_none() && self.unfit.is_empty() && self.claims.iter().all(is_anywhere)
    }

    /// Claims that have no devices yet.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &ClaimOfPod> {
        self.claims.iter().filter(|own| own.status().allocation.is_none())
    }

    /// Looks at one node: once in an attempt, for what pods use of it says nothing about devices.
    pub(crate) fn check(&self, attempt: &Attempt, nodes: &NodeTable, node: NodeId) -> Result<(), Rejection> {
        if let Some(known) = self.checked.borrow().get(&node) {
            return known.clone();
        }
        let found = self.look_at(attempt, nodes, node);
        self.checked.borrow_mut().insert(node, found.clone());
        found
    }

    fn look_at(&self, attempt: &Attempt, nodes: &NodeTable, node: NodeId) -> Result<(), Rejection> {
        attempt.worked(self.claims.len());
        let new = self.new_claim(attempt, nodes, node)?;
        let (name, labels) = (&nodes.names[node], &nodes.labels[node]);
        let is_far = |own: &ClaimOfPod| {
            let selector = own
                .status()
                .allocation
                .as_ref()
                .and_then(|own| own.node_selector.as_ref());
            selector.is_some_and(|own| !node_selector_matches(own, name, labels))
        };
        let far = self.claims.iter().enumerate();
        let far = far.filter(|(at, own)| self.unfit.contains(at) || is_far(own));
        let far: Vec<usize> = far.map(|(at, _)| at).collect();
        if new.is_some() || self.waiting().next().is_some() {
            if let Some(error) = self.error.get() {
                return Err(Rejection::unresolvable(error.clone()));
            }
            let score = self.solve(attempt, nodes, node, new.as_ref(), |own| own.score());
            let score = score.map_err(|why| self.refused(why, name))?;
            self.scores.borrow_mut().insert(node, score);
        }
        if far.is_empty() {
            return Ok(());
        }
        self.unavailable.borrow_mut().extend(far);
        Err(Rejection::unresolvable("resourceclaim not available on the node"))
    }

    fn refused(&self, why: Refusal, node: &str) -> Rejection {
        let error = match &why {
            Refusal::Broken(_) => why.message(),
            Refusal::TimedOut => format!("node {node}: {}", why.message()),
            Refusal::Unsatisfied | Refusal::InvalidPools => return Rejection::unresolvable(why.message()),
        };
        Rejection::unresolvable(self.error.get_or_init(|| error).clone())
    }

    /// The claim that the pod's extended resources need on the node; an error where the node has them in no way. One that
    /// has them all from device plugins needs none, where upstream makes a claim without requests for pods with others.
    pub(crate) fn new_claim(
        &self,
        attempt: &Attempt,
        nodes: &NodeTable,
        node: NodeId,
    ) -> Result<Option<NewClaim>, Rejection> {
        let Some(special) = &self.special else {
            return Ok(None);
        };
        let requested = &attempt.pod().extended;
        attempt.worked(requested.len());
        let needed = special.needed(nodes, node)?;
        Ok((!needed.is_empty()).then(|| NewClaim::of(requested, &needed)))
    }

    /// The claim that an attempt before made for extended resources.
    pub(crate) fn left_over(&self) -> Option<&(ObjectKey, Arc<DeviceClaim>)> {
        self.special.as_ref()?.left_over.as_ref()
    }

    /// Devices of the node for the claims that have none, the new one last; the same each time.
    fn solve<T>(
        &self,
        attempt: &Attempt,
        nodes: &NodeTable,
        node: NodeId,
        new: Option<&NewClaim>,
        read: impl FnOnce(&Solution<'_>) -> T,
    ) -> Result<T, Refusal> {
        let waiting = self.waiting().map(|own| Wanted {
            key: &own.key,
            spec: own.spec(attempt),
        });
        let mut wanted: Vec<Wanted<'_>> = waiting.collect();
        let spec = new.map(NewClaim::spec);
        if let Some((special, spec)) = self.special.as_ref().zip(spec.as_ref()) {
            let key = &special.key;
            wanted.push(Wanted { key, spec });
        }
        let around = Surroundings {
            devices: &nodes.devices,
            nodes,
            node,
            available: &self.available,
            budget: &self.budget,
        };
        let solution = allocate(around, &wanted);
        attempt.worked(self.budget.take_done());
        solution.map(|own| read(&own))
    }

    /// The same for the node that was chosen: the steps of the search that found it are its budget.
    pub(crate) fn solve_again<T>(
        &self,
        attempt: &Attempt,
        nodes: &NodeTable,
        node: NodeId,
        new: Option<&NewClaim>,
        read: impl FnOnce(&Solution<'_>) -> T,
    ) -> Result<T, Refusal> {
        self.budget.renew();
        self.solve(attempt, nodes, node, new, read)
    }

    /// Reports whether some of the claims have alternatives, by which nodes differ.
    pub(crate) fn rates_nodes(&self, attempt: &Attempt) -> bool {
        self.waiting().any(|own| {
            let requests = &own.spec(attempt).devices.requests;
            requests.iter().any(|own| own.exactly.is_none())
        })
    }

    /// The score of a node that was looked at, 0 for any other.
    pub(crate) fn score(&self, node: NodeId) -> i64 {
        self.scores.borrow().get(&node).copied().unwrap_or(0)
    }

    /// The first claim whose devices are out of reach, and which no other pod has reserved or is about to: without them the
    /// pod may fit.
    pub(crate) fn to_deallocate(&self, pod: &PodInfo, known: &Devices) -> Option<&ClaimOfPod> {
        let unavailable = self.unavailable.borrow();
        let all = unavailable.iter().filter_map(|at| self.claims.get(*at));
        let is_free = |own: &&ClaimOfPod| match own.status().reserved_for.as_slice() {
            [] => true,
            [only] => *only.uid == *pod.uid(),
            _ => false,
        };
        all.filter(|own| !known.is_in_writing(&own.key)).find(is_free)
    }
}

impl ClaimOfPod {
    /// Says why no node will do for the claim.
    fn check(&self, attempt: &Attempt, devices: &Devices) -> Result<(), String> {
        let status = self.status();
        if status.allocation.is_some() {
            let may_reserve = status.can_be_reserved() || status.is_reserved_for(attempt.pod().uid());
            return match may_reserve && !devices.is_pending(&self.key) {
                true => Ok(()),
                false if may_reserve => Err(self.pending()),
                false => Err("resourceclaim in use".to_owned()),
            };
        }
        for request in &self.spec(attempt).devices.requests {
            attempt.worked(1);
            let exactly = request.exactly.iter().map(|own| (own, request.name.to_string()));
            let alternatives = request.first_available.iter();
            let alternatives = alternatives.map(|own| (own, format!("{}/{}", request.name, own.name)));
            let mut all = exactly.chain(alternatives).peekable();
            if all.peek().is_none() {
                let (key, name) = (&self.key, &request.name);
                return Err(format!(
                    "resource claim {key}, request {name}: unknown request type"
                ));
            }
            for (own, name) in all {
                let class = &own.device_class_name;
                if class.is_empty() {
                    return Err(format!("request {name}: unsupported request type"));
                }
                if devices.classes.get(class).is_none() {
                    return Err(format!("request {name}: device class {class} does not exist"));
                }
            }
        }
        Ok(())
    }

    fn pending(&self) -> String {
        let key = &self.key;
        format!("resource claim {key} is in the process of being allocated")
    }
}
