//! Names of the ResourceClaims that a pod refers to, and the checks of a claim before the pod uses it. Pure; words are upstream's
//! (`k8s.io/dynamic-resource-allocation/resourceclaim`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use machinery_meta::Quantity;

use crate::pods::{name, namespace, spec, uid};

/// A claim by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) name: String,
    /// It was made for the pod, which must be its owner.
    pub(super) is_owned: bool,
}

/// Returns the claim of a reference in the pod; `None` where none is needed.
///
/// # Errors
/// It is not made yet, or the reference names none.
pub(super) fn reference(pod: &Pod, claim: &PodResourceClaim) -> Result<Option<Reference>, String> {
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some(Reference {
            name: name.clone(),
            is_owned: false,
        }));
    }
    let (namespace, pod_name) = (namespace(pod), name(pod));
    if claim.resource_claim_template_name.is_none() {
        return Err(format!(
            "pod \"{namespace}/{pod_name}\", spec.resourceClaim {:?}: none of the supported fields are set",
            claim.name
        ));
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_ref());
    let made = statuses.into_iter().flatten().find(|own| own.name == claim.name);
    let Some(made) = made else {
        return Err(format!(
            "pod \"{namespace}/{pod_name}\": ResourceClaim not created yet"
        ));
    };
    let named = made.resource_claim_name.clone();
    Ok(named.map(|name| Reference { name, is_owned: true }))
}

/// Returns all claims of a pod, each once: those that it refers to, and the one that was made for its extended resources.
///
/// # Errors
/// As of [`reference`].
pub(super) fn references(pod: &Pod) -> Result<Vec<Reference>, String> {
    let mut all: Vec<Reference> = Vec::new();
    let mut names = BTreeMap::new();
    let own = spec(pod).resource_claims.iter().flatten();
    let own = own.map(|claim| reference(pod, claim));
    let extended = extended_claim(pod).map(|name| {
        Ok(Some(Reference {
            name: name.to_owned(),
            is_owned: false,
        }))
    });
    for found in own.chain(extended) {
        let Some(found) = found? else { continue };
        match names.get(&found.name) {
            None => {
                names.insert(found.name.clone(), all.len());
                all.push(found);
            }
            Some(at) => all[*at].is_owned |= found.is_owned,
        }
    }
    Ok(all)
}

/// Reports whether a pod refers to claims at all.
pub(super) fn has_claims(pod: &Pod) -> bool {
    spec(pod).resource_claims.iter().flatten().next().is_some() || extended_claim(pod).is_some()
}

/// Name of the claim that the scheduler has made for the pod's extended resources.
fn extended_claim(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let own = status.extended_resource_claim_status.as_ref()?;
    Some(&own.resource_claim_name)
}

/// Checks that a pod may use a claim.
///
/// # Errors
/// The claim was made for another pod, or is not reserved for this one.
pub(super) fn check(pod: &Pod, reference: &Reference, claim: &ResourceClaim) -> Result<(), String> {
    let (own, claim_name) = (name(pod), &reference.name);
    let claim_uid = claim.metadata.uid.as_deref().unwrap_or_default();
    if reference.is_owned && !is_controlled_by(claim, uid(pod)) {
        let namespace = namespace(pod);
        return Err(format!(
            "ResourceClaim {namespace}/{claim_name} was not created for Pod {namespace}/{own} (Pod is not owner)"
        ));
    }
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    match reserved.into_iter().flatten().any(|of| of.uid == uid(pod)) {
        true => Ok(()),
        false => Err(format!(
            "pod {own} ({}) is not allowed to use ResourceClaim {claim_name} ({claim_uid})",
            uid(pod)
        )),
    }
}

fn is_controlled_by(claim: &ResourceClaim, uid: &str) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| owner.uid == uid)
}

/// Requests of a container by name of the claim; an empty one is the whole claim.
pub(super) type Requests = BTreeMap<String, BTreeSet<String>>;

/// Returns the requests whose devices a container gets.
///
/// # Errors
/// As of [`reference`].
pub(super) fn requests(pod: &Pod, container: &Container) -> Result<Requests, String> {
    let mut requests = Requests::new();
    let resources = container.resources.as_ref();
    let own = resources.and_then(|resources| resources.claims.as_ref());
    let own: Vec<_> = own.into_iter().flatten().collect();
    for claim in spec(pod).resource_claims.iter().flatten() {
        let mut named = own.iter().filter(|own| own.name == claim.name).peekable();
        if named.peek().is_none() {
            continue;
        }
        let Some(found) = reference(pod, claim)? else {
            continue;
        };
        let of_claim = requests.entry(found.name).or_default();
        of_claim.extend(named.map(|own| own.request.clone().unwrap_or_default()));
    }
    extended_requests(pod, container, &mut requests);
    Ok(requests)
}

fn extended_requests(pod: &Pod, container: &Container, into: &mut Requests) {
    let status = pod.status.as_ref();
    let Some(extended) = status.and_then(|status| status.extended_resource_claim_status.as_ref()) else {
        return;
    };
    let requested = container.resources.as_ref().and_then(|own| own.requests.as_ref());
    let is_requested = |resource: &str| {
        let amount = requested.and_then(|requested| requested.get(resource));
        amount.is_some_and(|amount| amount.0.parse::<Quantity>().is_ok_and(|own| own.units() > 0))
    };
    for mapping in &extended.request_mappings {
        if mapping.container_name == container.name && is_requested(&mapping.resource_name) {
            let of_claim = into.entry(extended.resource_claim_name.clone()).or_default();
            of_claim.insert(mapping.request_name.clone());
        }
    }
}
