//! Pods of the node: mirror pods, status, eviction, and the status of their claims.

use super::{NodeRequest, NodeRestriction, Verdict, missing, refuse, same};
use crate::{AdmissionError, Operation};
use machinery_api::pod::{MIRROR_ANNOTATION, PodView};
use machinery_schema::{Ref, Tree};

/// Volume sources that name no API object.
const PLAIN_VOLUMES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volume sources that do, and what they name.
const NAMING_VOLUMES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Sources of projected volumes that name API objects.
const NAMING_PROJECTIONS: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Members of a pod's status that name resource claims, and how a refusal calls them.
const CLAIM_STATUSES: [(&str, &str); 3] = [
    ("resourceClaimStatuses", "resource claim statues"),
    ("extendedResourceClaimStatus", "extended resource claim status"),
    (
        "nodeAllocatableResourceClaimStatuses",
        "node allocatable resource claim statuses",
    ),
];

/// Members of a claim's status that a node writes.
const CLAIM_FIELDS: [&str; 4] = [
    "capacity",
    "conditions",
    "allocatedResourceStatuses",
    "allocatedResources",
];

impl NodeRestriction {
    pub(super) async fn pod_itself(&self, asked: NodeRequest<'_>) -> Verdict {
        let NodeRequest { node, request, .. } = asked;
        match request.operation {
            Operation::Create => self.create_pod(node, asked.written()?).await,
            Operation::Delete => {
                let pod = self.pod(request.namespace, request.name).await?;
                if PodView::new(pod.tree.root()).node_name() == node {
                    return Ok(());
                }
                refuse(format!(
                    "node {node:?} can only delete pods with spec.nodeName set to itself"
                ))
            }
            _ => refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                asked.operation()
            )),
        }
    }

    async fn create_pod(&self, node: &str, pod: &Tree) -> Verdict {
        let view = PodView::new(pod.root());
        if !view.is_mirror() {
            return refuse(format!(
                "pod does not have {MIRROR_ANNOTATION:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if view.node_name() != node {
            return refuse(format!(
                "node {node:?} can only create pods with spec.nodeName set to itself"
            ));
        }
        self.check_owner(node, pod).await?;
        match referenced(view) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => refuse(format!("node {node:?} can not create pods that reference {what}")),
            Err(unknown) => refuse(format!("error checking mirror pod for API references: {unknown}")),
        }
    }

    async fn check_owner(&self, node: &str, pod: &Tree) -> Verdict {
        let owners = pod.at(&["metadata", "ownerReferences"]);
        let mut owners = owners.into_iter().flat_map(Ref::items);
        let itself = format!("node {node:?} can only create pods with an owner reference set to itself");
        let Some(owner) = owners.next() else {
            return refuse(itself);
        };
        if owners.next().is_some() {
            return refuse(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
        if owner.str("apiVersion") != "v1" || owner.str("kind") != "Node" || owner.str("name") != node {
            return refuse(itself);
        }
        if owner.get("controller").and_then(Ref::as_bool) != Some(true) {
            return refuse(format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if owner.get("blockOwnerDeletion").and_then(Ref::as_bool) == Some(true) {
            return refuse(format!(
                "node {node:?} must not set blockOwnerDeletion on an owner reference"
            ));
        }
        let found = self.stored("", "nodes", "Node", "", node).await?;
        let own = found.ok_or_else(|| missing("", "node", node))?.found;
        let given = owner.str("uid");
        if own.header.uid.0 == given {
            return Ok(());
        }
        refuse(format!(
            "node {node} UID mismatch: expected {given} got {}",
            own.header.uid
        ))
    }

    pub(super) async fn eviction(&self, asked: NodeRequest<'_>) -> Verdict {
        let NodeRequest { node, request, .. } = asked;
        if request.operation != Operation::Create {
            return refuse(format!("unexpected operation {}", asked.operation()));
        }
        let name = asked.name();
        if name.is_empty() {
            return refuse("could not determine pod from request data");
        }
        let pod = self.pod(request.namespace, name).await?;
        if PodView::new(pod.tree.root()).node_name() == node {
            return Ok(());
        }
        refuse(format!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        ))
    }
}

/// The first kind of API object that a mirror pod names and may not; an unknown source is an error.
fn referenced(pod: PodView<'_>) -> Result<Option<&'static str>, String> {
    let first = [
        (!pod.service_account().is_empty(), "serviceaccounts"),
        (pod.secrets().next().is_some(), "secrets"),
        (pod.config_maps().next().is_some(), "configmaps"),
        (pod.resource_claim_references().next().is_some(), "resourceclaims"),
    ];
    if let Some((_, what)) = first.into_iter().find(|(named, _)| *named) {
        return Ok(Some(what));
    }
    for volume in pod.volumes() {
        if let Some(what) = named_by(volume)? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn named_by(volume: Ref<'_>) -> Result<Option<&'static str>, String> {
    if PLAIN_VOLUMES.iter().any(|source| volume.get(source).is_some()) {
        return Ok(None);
    }
    let naming = NAMING_VOLUMES
        .iter()
        .find(|(source, _)| volume.get(source).is_some());
    if let Some((_, what)) = naming {
        return Ok(Some(what));
    }
    let Some(projected) = volume.get("projected") else {
        return Err(format!(
            "unknown volume type for volume  {:?}",
            volume.str("name")
        ));
    };
    for source in projected.list("sources") {
        let naming = NAMING_PROJECTIONS
            .iter()
            .find(|(member, _)| source.get(member).is_some());
        if let Some((_, what)) = naming {
            return Ok(Some(what));
        }
        if source.get("downwardAPI").is_none() {
            return Err(format!(
                "unknown source for projected volume {:?}",
                volume.str("name")
            ));
        }
    }
    Ok(None)
}

pub(super) fn status(asked: NodeRequest<'_>) -> Verdict {
    let (pod, old) = asked.update()?;
    let node = asked.node;
    if PodView::new(old.root()).node_name() != node {
        return refuse(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if !same(pod, old, &["metadata", "labels"]) {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    let changed = CLAIM_STATUSES
        .iter()
        .find(|(member, _)| !same(pod, old, &["status", member]));
    match changed {
        Some((_, what)) => refuse(format!("node {node:?} cannot update {what}")),
        None => Ok(()),
    }
}

/// Nodes report how far a claim has grown; they neither relabel it nor add finalizers or owners.
pub(super) fn volume_claim_status(asked: NodeRequest<'_>) -> Verdict {
    let (claim, old) = asked.update()?;
    let rest = |tree: &Tree| {
        let mut rest = tree.clone();
        for member in CLAIM_FIELDS {
            rest.remove(&["status", member]);
        }
        for member in ["resourceVersion", "managedFields"] {
            rest.remove(&["metadata", member]);
        }
        rest
    };
    let (rest, old) = (rest(claim), rest(old));
    if rest == old {
        return Ok(());
    }
    Err(AdmissionError::forbidden(format!(
        "node {:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
        asked.node,
        changed_members(&rest, &old)
    )))
}

/// Names of members, two levels deep, that differ.
fn changed_members(object: &Tree, old: &Tree) -> String {
    let mut changed = Vec::new();
    for part in ["metadata", "spec", "status"] {
        let names = |tree: &Tree| -> Vec<String> {
            let part = tree.get(part);
            let entries = part.into_iter().flat_map(Ref::entries);
            entries.map(|(name, _)| name.to_owned()).collect()
        };
        let mut all = names(object);
        all.extend(names(old));
        all.sort();
        all.dedup();
        let differs = |name: &String| object.at(&[part, name]) != old.at(&[part, name]);
        changed.extend(
            all.into_iter()
                .filter(differs)
                .map(|name| format!("{part}.{name}")),
        );
    }
    changed.join(", ")
}
