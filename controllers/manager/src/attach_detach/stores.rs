//! Reads of the caches: what the pods of a node need, which attachments there are, and the nodes that a change concerns.

use super::names::{attachment_name, attachment_of, is_attachment_name, unique_name};
use super::plan::{Attachment, Look, NodeFacts, PodRef, Wanted};
use super::views::{AttachmentView, DriverView};
use crate::pod_gc::OUT_OF_SERVICE;
use crate::views::{Condition, NodeView, PodClaim, PodView, find};
use crate::volume_binder::views::{ClaimView, CsiSource, VolumeView};
use machinery_client::{Informer, Object};
use machinery_meta::ObjectKey;
use std::collections::BTreeMap;
use std::sync::Arc;

const SHARED_MODES: [&str; 2] = ["ReadWriteMany", "ReadOnlyMany"];

/// Caches that plans are made from.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) pods: Informer<PodView>,
    pub(super) claims: Informer<ClaimView>,
    pub(super) volumes: Informer<VolumeView>,
    pub(super) nodes: Informer<NodeView>,
    pub(super) drivers: Informer<DriverView>,
    pub(super) attachments: Informer<AttachmentView>,
}

type VolumeRef = Arc<Object<VolumeView>>;

impl Stores {
    /// Everything about a node; `departed` is the node as it last was, where it has gone.
    pub(super) fn look(&self, name: &str, departed: Option<Arc<Object<NodeView>>>) -> Look {
        let node = self.nodes.get(&ObjectKey::cluster(name));
        let exists = node.is_some();
        let view = node.or(departed);
        let wanted = view.as_ref().map(|view| self.wanted(view)).unwrap_or_default();
        let in_use = view.as_ref().map(|view| &*view.volumes_in_use);
        let reported = view.as_ref().map_or(&[][..], |view| &view.volumes_attached);
        let named = in_use.unwrap_or_default().iter();
        let named = named.chain(reported.iter().map(|own| &own.name));
        let known: BTreeMap<String, &str> = named
            .filter_map(|unique| Some((attachment_of(unique, name)?, &**unique)))
            .collect();
        let holds = |fact: fn(&NodeView) -> bool| exists && view.as_ref().is_some_and(|view| fact(view));
        Look {
            attachments: self.attachments(name, &known),
            node: NodeFacts {
                exists,
                healthy: holds(is_ready),
                out_of_service: holds(is_out_of_service),
                in_use: in_use.map(|names| used(names, name)),
                reported: reported.to_vec(),
            },
            wanted,
        }
    }

    /// The node's attachments whose names are those of their volumes: the controller's own.
    fn attachments(&self, node: &str, known: &BTreeMap<String, &str>) -> Vec<Attachment> {
        let all = self.attachments.by_index(AttachmentView::NODE, node);
        let own = all.iter().filter(|own| is_ours(own));
        let attachment = |own: &Arc<Object<AttachmentView>>| {
            let volume = self.volumes.get(&ObjectKey::cluster(&*own.volume));
            let csi = volume.as_ref().and_then(|volume| volume.csi.as_deref());
            let csi = csi.filter(|csi| attachment_name(&csi.driver, &csi.volume_handle, node) == own.name());
            let of_volume = csi.map(|csi| unique_name(&csi.driver, &csi.volume_handle));
            Attachment {
                name: own.name().to_owned(),
                uid: own.uid().clone(),
                driver: own.attacher.clone(),
                unique: of_volume.or_else(|| known.get(own.name()).map(|name| (*name).to_owned())),
                attached: own.attached,
                deleting: own.header.is_deleting(),
                error: own.error.as_deref().cloned(),
            }
        };
        own.map(attachment).collect()
    }

    /// Volumes that pods of the node need, by the name of the attachment.
    pub(super) fn wanted(&self, node: &Object<NodeView>) -> BTreeMap<String, Wanted> {
        let mut found: BTreeMap<String, Wanted> = BTreeMap::new();
        if !node.has_volumes_attached {
            return found;
        }
        for pod in self.pods.by_index(PodView::NODE, node.name()) {
            if is_done(&pod) && !node.keeps_volumes_of_ended {
                continue;
            }
            for claim in &pod.claims {
                let Some((volume, csi)) = self.attachable(&pod, claim) else {
                    continue;
                };
                let name = attachment_name(&csi.driver, &csi.volume_handle, node.name());
                let wanted = found.entry(name).or_insert_with(|| wanted(&volume, &csi));
                wanted.pods.push(PodRef {
                    key: pod.key().clone(),
                    uid: pod.uid().clone(),
                });
            }
        }
        found
    }

    /// The volume of a pod's claim, where both are bound to each other and its driver attaches.
    fn attachable(&self, pod: &Object<PodView>, claim: &PodClaim) -> Option<(VolumeRef, CsiSource)> {
        let found = self.claims.get(&ObjectKey::new(pod.namespace(), &*claim.name))?;
        let owner = found.header.controller();
        if &*found.phase != "Bound" || claim.is_made_for_pod && owner.is_none_or(|own| own.uid != *pod.uid())
        {
            return None;
        }
        let volume = self.volumes.get(&ObjectKey::cluster(&*found.volume))?;
        let names_claim = volume
            .claim
            .as_ref()
            .is_some_and(|own| *own.uid == *found.uid().0);
        let csi = volume.csi.as_deref().filter(|_| names_claim)?.clone();
        let driver = self.drivers.get(&ObjectKey::cluster(&*csi.driver));
        // A driver without an object is one that attaches.
        driver
            .is_none_or(|driver| driver.attaches)
            .then_some((volume, csi))
    }

    /// Other nodes with attachments of a volume.
    pub(super) fn holders(&self, wanted: &Wanted, node: &str) -> Vec<Box<str>> {
        let volumes = self.volumes_of(&wanted.driver, &wanted.handle);
        let all = volumes
            .iter()
            .flat_map(|volume| self.attachments.by_index(AttachmentView::VOLUME, volume.name()));
        let held = all.filter(|own| *own.node != *node && is_ours(own));
        held.filter(|own| attachment_name(&wanted.driver, &wanted.handle, &own.node) == own.name())
            .map(|own| own.node.clone())
            .collect()
    }

    /// Pods on these nodes that need the volume.
    pub(super) fn users(&self, wanted: &Wanted, nodes: &[Box<str>]) -> Vec<PodRef> {
        let nodes = nodes
            .iter()
            .filter_map(|node| self.nodes.get(&ObjectKey::cluster(&**node)));
        let of_node = |node: Arc<Object<NodeView>>| {
            let name = attachment_name(&wanted.driver, &wanted.handle, node.name());
            self.wanted(&node).remove(&name).map(|own| own.pods)
        };
        let mut users: Vec<PodRef> = nodes.filter_map(of_node).flatten().collect();
        users.sort_by(|a, b| a.key.cmp(&b.key));
        users
    }

    fn volumes_of(&self, driver: &str, handle: &str) -> Vec<VolumeRef> {
        let csi = CsiSource {
            driver: driver.into(),
            volume_handle: handle.into(),
        };
        self.volumes
            .by_index(VolumeView::HANDLE, &VolumeView::of_handle(&csi))
    }

    /// Nodes of the pods that use a claim.
    pub(super) fn nodes_of_claim(&self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        let pods = self
            .pods
            .by_index(machinery_client::IndexName::NAMESPACE, namespace);
        let using = pods
            .iter()
            .filter(|pod| !pod.node.is_empty() && pod.claims.iter().any(|claim| *claim.name == *name));
        using.map(|pod| ObjectKey::cluster(&*pod.node)).collect()
    }

    /// Nodes of the pods that use a volume, or another object for the same one.
    pub(super) fn nodes_of_handle(&self, driver: &str, handle: &str) -> Vec<ObjectKey> {
        let volumes = self.volumes_of(driver, handle);
        let claims = volumes.iter().filter_map(|volume| volume.claim.as_ref());
        claims
            .flat_map(|claim| self.nodes_of_claim(&claim.namespace, &claim.name))
            .collect()
    }
}

fn wanted(volume: &Object<VolumeView>, csi: &CsiSource) -> Wanted {
    let modes = &volume.access_modes;
    Wanted {
        unique: unique_name(&csi.driver, &csi.volume_handle),
        volume: volume.name().into(),
        driver: csi.driver.clone(),
        handle: csi.volume_handle.clone(),
        shared: modes.is_empty() || modes.iter().any(|mode| SHARED_MODES.contains(&&**mode)),
        pods: Vec::new(),
    }
}

/// Attachments of other names are their makers' own.
fn is_ours(own: &Object<AttachmentView>) -> bool {
    is_attachment_name(own.name()) && !own.volume.is_empty()
}

/// Attachments of the volumes that a node uses.
pub(super) fn used(names: &[Box<str>], node: &str) -> Vec<String> {
    names
        .iter()
        .filter_map(|name| attachment_of(name, node))
        .collect()
}

fn is_ready(node: &NodeView) -> bool {
    find(&node.conditions, "Ready").is_some_and(Condition::is_true)
}

fn is_out_of_service(node: &NodeView) -> bool {
    node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Reports whether a pod has ended, or is to go and none of its containers runs.
pub(super) fn is_done(pod: &Object<PodView>) -> bool {
    pod.is_terminal() || pod.header.is_deleting() && !pod.runs
}

/// Fields of a node that its attachments depend on.
pub(super) fn differ(old: &NodeView, new: &NodeView) -> bool {
    let rest = |node: &NodeView| {
        (
            node.has_volumes_attached,
            node.keeps_volumes_of_ended,
            is_ready(node),
            is_out_of_service(node),
        )
    };
    rest(old) != rest(new)
        || old.volumes_in_use != new.volumes_in_use
        || old.volumes_attached != new.volumes_attached
}
