//! NodeRestriction: a node's agent writes only about its own node and about pods bound to it.

use super::objects::{MIRROR_POD, annotation, containers, find};
use crate::{AdmissionError, Operation, Plugin, Request};
use async_trait::async_trait;
use machinery_meta::GroupResource;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_schema::{Ref, Tree};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const RESTRICTED_NAMESPACE: &str = "node-restriction.kubernetes.io";

/// Labels below `kubernetes.io` that a node may set on itself.
const KUBELET_LABELS: [&str; 13] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "node.kubernetes.io/exclude-from-external-load-balancers",
];
const KUBELET_LABEL_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

pub(super) struct NodeRestriction(Arc<dyn ObjectReader>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct BoundPod {
    spec: BoundPodSpec,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct BoundPodSpec {
    node_name: String,
}

fn refuse(why: impl Into<String>) -> Result<(), AdmissionError> {
    Err(AdmissionError::forbidden(why))
}

impl NodeRestriction {
    pub(super) fn new(reader: &Arc<dyn ObjectReader>) -> Self {
        Self(Arc::clone(reader))
    }

    async fn existing_pod(
        &self,
        request: &Request<'_>,
        name: &str,
    ) -> Result<(ReadObject, String), AdmissionError> {
        let found = find(&*self.0, "", "pods", request.namespace, name).await?;
        let missing = || AdmissionError::NotFound {
            resource: GroupResource::new("", "pods"),
            name: name.to_owned(),
        };
        let found = found.ok_or_else(missing)?;
        let pod: BoundPod = serde_json::from_slice(&found.json).unwrap_or_default();
        Ok((found, pod.spec.node_name))
    }

    async fn create_pod(&self, node: &str, pod: &Tree) -> Result<(), AdmissionError> {
        if annotation(pod, MIRROR_POD).is_none() {
            return refuse(format!(
                "pod does not have {MIRROR_POD:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if pod.str_at(&["spec", "nodeName"]) != node {
            return refuse(format!(
                "node {node:?} can only create pods with spec.nodeName set to itself"
            ));
        }
        self.check_owner(node, pod).await?;
        if !pod.str_at(&["spec", "serviceAccountName"]).is_empty() {
            return refuse(format!(
                "node {node:?} can not create pods that reference a service account"
            ));
        }
        match referenced(pod) {
            Some(what) => refuse(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    async fn check_owner(&self, node: &str, pod: &Tree) -> Result<(), AdmissionError> {
        let mut owners = pod
            .at(&["metadata", "ownerReferences"])
            .into_iter()
            .flat_map(Ref::items);
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
        let given = owner.str("uid").to_owned();
        let Some(found) = find(&*self.0, "", "nodes", "", node).await? else {
            return Err(AdmissionError::NotFound {
                resource: GroupResource::new("", "nodes"),
                name: node.to_owned(),
            });
        };
        if found.header.uid.0 != given {
            return refuse(format!(
                "node {node} UID mismatch: expected {given} got {}",
                found.header.uid
            ));
        }
        Ok(())
    }

    async fn delete_pod(&self, node: &str, request: &Request<'_>) -> Result<(), AdmissionError> {
        let (_, bound_to) = self.existing_pod(request, request.name).await?;
        if bound_to != node {
            return refuse(format!(
                "node {node:?} can only delete pods with spec.nodeName set to itself"
            ));
        }
        Ok(())
    }

    async fn token(&self, node: &str, request: &Request<'_>, asked: &Tree) -> Result<(), AdmissionError> {
        let bound = asked.at(&["spec", "boundObjectRef"]);
        let part = |name: &str| bound.map_or("", |bound| bound.str(name)).to_owned();
        let (name, uid) = (part("name"), part("uid"));
        if part("apiVersion") != "v1" || part("kind") != "Pod" || name.is_empty() {
            return refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let (pod, bound_to) = self.existing_pod(request, &name).await?;
        if pod.header.uid.0 != uid {
            return refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if bound_to != node {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        Ok(())
    }
}

/// The first kind of API object a mirror pod names and may not.
fn referenced(pod: &Tree) -> Option<&'static str> {
    let env = || containers(pod).flat_map(|c| c.list("env"));
    let env_from = || containers(pod).flat_map(|c| c.list("envFrom"));
    let volumes = || pod.at(&["spec", "volumes"]).into_iter().flat_map(Ref::items);
    let sources = || {
        volumes()
            .filter_map(|v| v.get("projected"))
            .flat_map(|p| p.list("sources"))
    };
    let uses = |key: &str, reference: &str, volume: &str| {
        env().any(|one| one.at(&["valueFrom", key]).is_some())
            || env_from().any(|one| one.get(reference).is_some())
            || volumes().any(|one| one.get(volume).is_some())
            || sources().any(|one| one.get(volume).is_some())
    };
    let pull_secrets = pod
        .at(&["spec", "imagePullSecrets"])
        .is_some_and(|list| !list.is_empty());
    if pull_secrets || uses("secretKeyRef", "secretRef", "secret") {
        return Some("secrets");
    }
    if uses("configMapKeyRef", "configMapRef", "configMap") {
        return Some("configmaps");
    }
    if sources().any(|one| one.get("clusterTrustBundle").is_some()) {
        return Some("clustertrustbundles");
    }
    volumes()
        .any(|one| one.get("persistentVolumeClaim").is_some())
        .then_some("persistentvolumeclaims")
}

fn update_pod_status(node: &str, pod: &Tree, old: &Tree) -> Result<(), AdmissionError> {
    if old.str_at(&["spec", "nodeName"]) != node {
        return refuse(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = |tree: &Tree| tree.at(&["metadata", "labels"]).map(|labels| labels.to_json());
    if labels(pod) != labels(old) {
        return refuse(format!("node {node:?} cannot update labels through pod status"));
    }
    Ok(())
}

fn write_node(
    node: &str,
    request: &Request<'_>,
    object: &Tree,
    old: Option<&Tree>,
) -> Result<(), AdmissionError> {
    let name = if request.name.is_empty() {
        object.str_at(&["metadata", "name"])
    } else {
        request.name
    };
    if name != node {
        return refuse(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let forbidden = forbidden_labels(object, old);
    let listed = forbidden
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let Some(old) = old else {
        if !forbidden.is_empty() {
            return refuse(format!(
                "node {node:?} is not allowed to set the following labels: {listed}"
            ));
        }
        return Ok(());
    };
    let taints = |tree: &Tree| {
        tree.at(&["spec", "taints"])
            .map(|taints| taints.to_json())
            .filter(|t| t != "[]")
    };
    if taints(object) != taints(old) {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    if !forbidden.is_empty() {
        return refuse(format!("is not allowed to modify labels: {listed}"));
    }
    Ok(())
}

fn forbidden_labels(object: &Tree, old: Option<&Tree>) -> BTreeSet<String> {
    let label = |tree: Option<&Tree>, key: &str| {
        tree.and_then(|tree| tree.at(&["metadata", "labels", key]))
            .and_then(Ref::as_str)
            .map(str::to_owned)
    };
    let keys = |tree: &Tree| -> Vec<String> {
        let labels = tree.at(&["metadata", "labels"]);
        labels
            .into_iter()
            .flat_map(Ref::entries)
            .map(|(key, _)| key.to_owned())
            .collect()
    };
    let mut all: BTreeSet<String> = keys(object).into_iter().collect();
    all.extend(old.into_iter().flat_map(keys));
    all.retain(|key| label(Some(object), key) != label(old, key) && is_forbidden(key));
    all
}

fn is_forbidden(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return false;
    };
    let below = |parent: &str| {
        namespace == parent || namespace.strip_suffix(parent).is_some_and(|p| p.ends_with('.'))
    };
    let own = KUBELET_LABELS.contains(&key) || KUBELET_LABEL_NAMESPACES.iter().any(|parent| below(parent));
    below(RESTRICTED_NAMESPACE) || ((below("kubernetes.io") || below("k8s.io")) && !own)
}

fn write_own(
    node: &str,
    request: &Request<'_>,
    object: Option<&Tree>,
    what: &str,
) -> Result<(), AdmissionError> {
    let created = object
        .map(|object| object.str_at(&["metadata", "name"]))
        .unwrap_or_default();
    let name = if request.operation == Operation::Create {
        created
    } else {
        request.name
    };
    if name == node {
        Ok(())
    } else {
        refuse(format!(
            "can only access {what} with the same name as the requesting node"
        ))
    }
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation != Operation::Connect && request.user.in_group("system:nodes")
    }

    /// Looks before other plugins change anything: what a mirror pod names is what its node wrote.
    async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        self.check(request, Some(object), old).await
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        // Writes were looked at before they were changed by others.
        if request.operation == Operation::Delete {
            self.check(request, object, old).await
        } else {
            Ok(())
        }
    }
}

impl NodeRestriction {
    async fn check(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(node) = request.user.node_name().filter(|node| !node.is_empty()) else {
            return refuse(format!(
                "could not determine node from user {:?}",
                request.user.name
            ));
        };
        match (
            request.group,
            request.resource,
            request.subresource,
            request.operation,
        ) {
            ("", "pods", "", Operation::Create) => match object {
                Some(pod) => self.create_pod(node, pod).await,
                None => Ok(()),
            },
            ("", "pods", "", Operation::Delete) => self.delete_pod(node, request).await,
            ("", "pods", "", _) => refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                request.operation.as_str()
            )),
            ("", "pods", "status", Operation::Update) => match (object, old) {
                (Some(pod), Some(old)) => update_pod_status(node, pod, old),
                _ => Ok(()),
            },
            ("", "pods", "eviction", Operation::Create) => {
                let (_, bound_to) = self.existing_pod(request, request.name).await?;
                if bound_to == node {
                    return Ok(());
                }
                refuse(format!(
                    "node {node} can only evict pods with spec.nodeName set to itself"
                ))
            }
            ("", "pods", other, _) => refuse(format!(
                "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
            )),
            ("", "nodes", _, Operation::Delete) => write_node_name(node, request),
            ("", "nodes", _, _) => object.map_or(Ok(()), |object| write_node(node, request, object, old)),
            ("", "persistentvolumeclaims", "status", _) => Ok(()),
            ("", "persistentvolumeclaims", _, _) => refuse("may only update PVC status"),
            ("", "serviceaccounts", "token", Operation::Create) => match object {
                Some(asked) => self.token(node, request, asked).await,
                None => Ok(()),
            },
            ("coordination.k8s.io", "leases", _, _) if request.namespace != LEASE_NAMESPACE => refuse(
                format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace"),
            ),
            ("coordination.k8s.io", "leases", _, _) => write_own(node, request, object, "node lease"),
            ("storage.k8s.io", "csinodes", _, _) => write_own(node, request, object, "CSINode"),
            _ => Ok(()),
        }
    }
}

fn write_node_name(node: &str, request: &Request<'_>) -> Result<(), AdmissionError> {
    if request.name == node {
        return Ok(());
    }
    refuse(format!(
        "node {node:?} is not allowed to modify node {:?}",
        request.name
    ))
}
