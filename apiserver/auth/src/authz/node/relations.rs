//! Relations of objects to nodes: an object is related if one of the node's pods, or a volume of one, needs it.

use super::index::{Need, Needed, VolumeNeeds};
use super::{Kind, NodeAuthorizer};
use crate::authz::attributes::ResourceTarget;
use crate::trusted;
use machinery_api::pod::PodView;
use machinery_api::read_stored;
use machinery_meta::reader::ReadError;
use machinery_meta::{FieldSelector, GroupResource, ObjectKey, Predicate, Revision};
use machinery_schema::Tree;
use std::collections::BTreeSet;

impl NodeAuthorizer {
    pub(super) async fn related(&self, node: &str, kind: Kind, target: &ResourceTarget<'_>) -> bool {
        let (namespace, name) = (target.namespace, target.name);
        let by_pod = |needed: Needed| self.any_pod(node, namespace, (needed, name.into()));
        match kind {
            Kind::Secret => {
                by_pod(Needed::Secret).await
                    || self
                        .volume_needs_secret(node, &ObjectKey::new(namespace, name))
                        .await
            }
            Kind::ConfigMap => by_pod(Needed::ConfigMap).await,
            Kind::VolumeClaim => by_pod(Needed::VolumeClaim).await,
            Kind::ResourceClaim => by_pod(Needed::ResourceClaim).await,
            Kind::ServiceAccount => by_pod(Needed::ServiceAccount).await,
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
                let (namespace, claim) = (claim("namespace"), claim("name"));
                self.any_pod(node, namespace, (Needed::VolumeClaim, claim.into()))
                    .await
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

    /// Reports whether a pod of the node needs an object of its namespace. The index may be a moment behind: where it knows of
    /// none, pods of the node whose last version it has not read are looked at.
    async fn any_pod(&self, node: &str, namespace: &str, need: Need) -> bool {
        if need.1.is_empty() {
            return false;
        }
        self.read_pods(node, namespace).await;
        if self.index.is_needed(node, namespace, &need) {
            return true;
        }
        self.unseen(node, namespace).await.contains(&need)
    }

    /// Returns what pods of the node need whose last version the index has not read.
    async fn unseen(&self, node: &str, namespace: &str) -> BTreeSet<Need> {
        let of_node = Predicate::from(FieldSelector::equals("spec.nodeName", node));
        let pods = GroupResource::new("", "pods");
        let versions = self.reader.versions(&pods, namespace, &of_node).await;
        let mut needs = BTreeSet::new();
        for (key, revision) in versions.unwrap_or_else(unreadable) {
            if !self.index.has_read(node, &key, revision)
                && let Some(pod) = trusted::get(&*self.reader, "", "pods", &key).await
            {
                needs.extend(needs_of(node, &pod.json));
            }
        }
        needs
    }

    /// Brings the index up to date with what it knows to have changed.
    async fn read_pods(&self, node: &str, namespace: &str) {
        for (key, known) in self.index.unread(node, namespace) {
            // One that is gone needs nothing; the index gets its event soon. One that cannot be read now is read at the next
            // question.
            let pod = match self.reader.get(&GroupResource::new("", "pods"), &key).await {
                Ok(pod) => pod,
                Err(error) => {
                    tracing::warn!(%error, "reading a pod for authorization");
                    continue;
                }
            };
            let needs = pod.as_ref().map(|pod| needs_of(node, &pod.json));
            let revision = pod.map_or(known, |pod| pod.revision.max(known));
            self.index.read(node, &key, revision, needs.unwrap_or_default());
        }
    }

    /// Reports whether a volume bound to a claim of one of the node's pods needs this secret on the node.
    async fn volume_needs_secret(&self, node: &str, secret: &ObjectKey) -> bool {
        let volumes = self.volumes_with(secret).await;
        let mut namespaces: BTreeSet<&str> = BTreeSet::new();
        for (volume, claim) in &volumes {
            if namespaces.insert(&claim.namespace) {
                self.read_pods(node, &claim.namespace).await;
            }
            let is_needed = self.index.is_needed(node, &claim.namespace, &claim_need(claim));
            if is_needed && self.is_bound(volume, claim, secret).await {
                return true;
            }
        }
        for namespace in namespaces {
            let unseen = self.unseen(node, namespace).await;
            let claims = volumes.iter().filter(|(_, claim)| claim.namespace == namespace);
            for (volume, claim) in claims.filter(|(_, claim)| unseen.contains(&claim_need(claim))) {
                if self.is_bound(volume, claim, secret).await {
                    return true;
                }
            }
        }
        false
    }

    /// Volumes that need a secret, and their claims: those that the index knows and those that it has not read.
    async fn volumes_with(&self, secret: &ObjectKey) -> Vec<(Box<str>, ObjectKey)> {
        let mut found = self.index.volumes_with(secret);
        let volumes = GroupResource::new("", "persistentvolumes");
        let all = Predicate::default();
        let versions = self.reader.versions(&volumes, "", &all).await;
        for (key, revision) in versions.unwrap_or_else(unreadable) {
            if self.index.has_read_volume(&key.name, revision) {
                continue;
            }
            if let Some(volume) = trusted::get(&*self.reader, "", "persistentvolumes", &key).await {
                let needs = volume_needs(volume.revision, &volume.json);
                let is_with = needs.secrets.contains(secret);
                found.extend(is_with.then(|| (key.name.into(), needs.claim)));
            }
        }
        found
    }

    /// Reports whether the claim names the volume, and the volume the claim and the secret, now.
    async fn is_bound(&self, volume: &str, claim: &ObjectKey, secret: &ObjectKey) -> bool {
        let (resource, kind) = ("persistentvolumeclaims", "PersistentVolumeClaim");
        let found = self
            .stored("", resource, kind, &claim.namespace, &claim.name)
            .await;
        if found.is_none_or(|found| found.str_at(&["spec", "volumeName"]) != volume) {
            return false;
        }
        let key = ObjectKey::new("", volume);
        let found = trusted::get(&*self.reader, "", "persistentvolumes", &key).await;
        found.is_some_and(|found| {
            let needs = volume_needs(found.revision, &found.json);
            needs.claim == *claim && needs.secrets.contains(secret)
        })
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

fn claim_need(claim: &ObjectKey) -> Need {
    (Needed::VolumeClaim, claim.name.as_str().into())
}

fn unreadable<T: Default>(error: ReadError) -> T {
    tracing::warn!(%error, "reading what a node needs for authorization");
    T::default()
}

/// Returns what a pod needs on a node: nothing, where it is bound to another one or the node itself wrote it.
fn needs_of(node: &str, json: &[u8]) -> BTreeSet<Need> {
    let Some(pod) = readable("", "Pod", json) else {
        return BTreeSet::new();
    };
    let pod = PodView::new(pod.root());
    if pod.node_name() != node || pod.is_mirror() {
        return BTreeSet::new();
    }
    let of = |needed: Needed| move |name: &str| (needed, Box::from(name));
    pod.secrets()
        .map(of(Needed::Secret))
        .chain(pod.config_maps().map(of(Needed::ConfigMap)))
        .chain(pod.resource_claims().map(of(Needed::ResourceClaim)))
        .chain(std::iter::once(pod.service_account()).map(of(Needed::ServiceAccount)))
        .chain(pod.volume_claims().map(|name| (Needed::VolumeClaim, name.into())))
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

/// The claim of a volume and the secrets that its node has to read.
pub(super) fn volume_needs(revision: Revision, json: &[u8]) -> VolumeNeeds {
    let none = VolumeNeeds {
        revision,
        ..VolumeNeeds::default()
    };
    let Some(volume) = readable("", "PersistentVolume", json) else {
        return none;
    };
    let of = |member: &str| volume.str_at(&["spec", "claimRef", member]);
    let claim = ObjectKey::new(of("namespace"), of("name"));
    let Some(spec) = volume.get("spec") else {
        return none;
    };
    let or_claims = |own: &str| match own {
        "" => claim.namespace.clone(),
        own => own.to_owned(),
    };
    let azure = spec
        .get("azureFile")
        .map(|source| ObjectKey::new(or_claims(source.str("secretNamespace")), source.str("secretName")));
    let referred = VOLUME_SECRETS.iter().filter_map(|(source, reference, of_claim)| {
        let found = spec.at(&[source, reference])?;
        let own = found.str("namespace");
        let own = if *of_claim { or_claims(own) } else { own.to_owned() };
        Some(ObjectKey::new(&own, found.str("name")))
    });
    let secrets = azure.into_iter().chain(referred);
    VolumeNeeds {
        revision,
        secrets: secrets.filter(|secret| !secret.name.is_empty()).collect(),
        claim,
    }
}
