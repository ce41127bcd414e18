//! Whether an object is needed on a node: by one of its pods, or by a volume of one.

use super::{Kind, NodeAuthorizer};
use crate::authz::attributes::ResourceTarget;
use crate::trusted;
use machinery_api::pod::PodView;
use machinery_api::read_stored;
use machinery_meta::reader::{ReadError, ReadObject};
use machinery_meta::{FieldSelector, GroupResource, ObjectKey};
use machinery_schema::Tree;
use std::collections::BTreeSet;

impl NodeAuthorizer {
    pub(super) async fn related(&self, node: &str, kind: Kind, target: &ResourceTarget<'_>) -> bool {
        let (namespace, name) = (target.namespace, target.name);
        match kind {
            Kind::Secret => {
                self.any_pod(node, namespace, |pod| pod.secrets().any(|own| own == name))
                    .await
                    || self.volume_needs_secret(node, namespace, name).await
            }
            Kind::ConfigMap => {
                self.any_pod(node, namespace, |pod| pod.config_maps().any(|own| own == name))
                    .await
            }
            Kind::VolumeClaim => self.needs_claim(node, namespace, name).await,
            Kind::ResourceClaim => {
                self.any_pod(node, namespace, |pod| {
                    pod.resource_claims().any(|own| own == name)
                })
                .await
            }
            Kind::ServiceAccount => {
                self.any_pod(node, namespace, |pod| pod.service_account() == name)
                    .await
            }
            Kind::Pod => {
                let pod = self.stored("", "pods", "Pod", namespace, name).await;
                pod.is_some_and(|pod| PodView::new(pod.root()).node_name() == node)
            }
            Kind::Volume => {
                let volume = self
                    .stored("", "persistentvolumes", "PersistentVolume", "", name)
                    .await;
                let Some(volume) = volume else { return false };
                let claim = |member: &str| volume.str_at(&["spec", "claimRef", member]);
                self.needs_claim(node, claim("namespace"), claim("name")).await
            }
            Kind::VolumeAttachment => {
                let (group, kind) = ("storage.k8s.io", "VolumeAttachment");
                self.names_node(node, group, "volumeattachments", kind, target)
                    .await
            }
            Kind::ResourceSlice => {
                let (group, kind) = ("resource.k8s.io", "ResourceSlice");
                self.names_node(node, group, "resourceslices", kind, target).await
            }
            Kind::PodCertificateRequest => {
                let (group, kind) = ("certificates.k8s.io", "PodCertificateRequest");
                self.names_node(node, group, "podcertificaterequests", kind, target)
                    .await
            }
        }
    }

    /// A stored object of group version v1; one that cannot be read relates to nothing.
    async fn stored(
        &self,
        group: &str,
        resource: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Tree> {
        let key = ObjectKey::new(namespace, name);
        let found = trusted::get(&*self.reader, group, resource, &key).await?;
        readable(group, kind, &found.json)
    }

    /// Whether a pod of the node does. The index of pods may be a moment behind: where it knows of none, the namespace
    /// itself is looked at.
    async fn any_pod(&self, node: &str, namespace: &str, uses: impl Fn(PodView<'_>) -> bool + Send) -> bool {
        let found = self.reader.pods_of_node(node, namespace).await;
        let indexed = own_pods(node, found);
        if indexed.iter().any(|pod| uses(PodView::new(pod.root()))) {
            return true;
        }
        let of_node = FieldSelector::equals("spec.nodeName", node);
        let pods = GroupResource::new("", "pods");
        let found = self.reader.list_where(&pods, namespace, &of_node).await;
        own_pods(node, found)
            .iter()
            .any(|pod| uses(PodView::new(pod.root())))
    }

    async fn needs_claim(&self, node: &str, namespace: &str, name: &str) -> bool {
        if name.is_empty() {
            return false;
        }
        self.any_pod(node, namespace, |pod| pod.volume_claims().any(|own| own == name))
            .await
    }

    /// Whether a volume bound to a claim of one of the node's pods needs this secret on the node.
    async fn volume_needs_secret(&self, node: &str, namespace: &str, name: &str) -> bool {
        let mut claims = BTreeSet::new();
        for pod in own_pods(node, self.reader.pods_of_node(node, "").await) {
            let own = pod.str_at(&["metadata", "namespace"]);
            let names = PodView::new(pod.root()).volume_claims();
            claims.extend(names.map(|claim| (own.to_owned(), claim)));
        }
        for (claim_namespace, claim) in claims {
            let volume = self.volume_of(&claim_namespace, &claim).await;
            if volume.is_some_and(|volume| needs_secret(&volume, &claim_namespace, (namespace, name))) {
                return true;
            }
        }
        false
    }

    /// The volume of a claim, where each names the other.
    async fn volume_of(&self, namespace: &str, claim: &str) -> Option<Tree> {
        let (resource, kind) = ("persistentvolumeclaims", "PersistentVolumeClaim");
        let found = self.stored("", resource, kind, namespace, claim).await?;
        let name = found.str_at(&["spec", "volumeName"]);
        let volume = self
            .stored("", "persistentvolumes", "PersistentVolume", "", name)
            .await?;
        let of = |member: &str| volume.str_at(&["spec", "claimRef", member]);
        (of("namespace") == namespace && of("name") == claim).then_some(volume)
    }

    async fn names_node(
        &self,
        node: &str,
        group: &str,
        resource: &str,
        kind: &str,
        target: &ResourceTarget<'_>,
    ) -> bool {
        let found = self
            .stored(group, resource, kind, target.namespace, target.name)
            .await;
        found.is_some_and(|object| object.str_at(&["spec", "nodeName"]) == node)
    }
}

/// The pods of the node without those that the node itself wrote.
fn own_pods(node: &str, found: Result<Vec<ReadObject>, ReadError>) -> Vec<Tree> {
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "reading the pods of a node for authorization");
            return Vec::new();
        }
    };
    found
        .iter()
        .filter_map(|pod| readable("", "Pod", &pod.json))
        .filter(|pod| {
            let view = PodView::new(pod.root());
            view.node_name() == node && !view.is_mirror()
        })
        .collect()
}

fn readable(group: &str, kind: &str, json: &[u8]) -> Option<Tree> {
    match read_stored(group, "v1", kind, json) {
        Ok(tree) => Some(tree),
        Err(error) => {
            tracing::warn!(%error, "reading an object for authorization");
            None
        }
    }
}

/// Secrets of volume sources: the source, the reference, and whether a reference without a namespace means the claim's.
const VOLUME_SECRETS: [(&str, &str, bool); 10] = [
    ("cephfs", "secretRef", true),
    ("cinder", "secretRef", false),
    ("flexVolume", "secretRef", true),
    ("iscsi", "secretRef", true),
    ("rbd", "secretRef", true),
    ("scaleIO", "secretRef", true),
    ("storageos", "secretRef", false),
    ("csi", "nodePublishSecretRef", false),
    ("csi", "nodeStageSecretRef", false),
    ("csi", "nodeExpandSecretRef", false),
];

/// Whether the volume names a secret that its node has to read.
fn needs_secret(volume: &Tree, claim_namespace: &str, (namespace, name): (&str, &str)) -> bool {
    let Some(spec) = volume.get("spec") else {
        return false;
    };
    let or_claims = |own: &'_ str| {
        if own.is_empty() {
            claim_namespace.to_owned()
        } else {
            own.to_owned()
        }
    };
    let azure = spec.get("azureFile").is_some_and(|source| {
        source.str("secretName") == name && or_claims(source.str("secretNamespace")) == namespace
    });
    azure
        || VOLUME_SECRETS.iter().any(|(source, reference, of_claim)| {
            let Some(found) = spec.at(&[source, reference]) else {
                return false;
            };
            let own = found.str("namespace");
            let own = if *of_claim { or_claims(own) } else { own.to_owned() };
            found.str("name") == name && own == namespace
        })
}
