//! A node's account after a start: the growth that can be read from what is stored.
//!
//! An object does not name the writer of each of its bytes, and tenants may write most of what names a node. So only that is
//! counted which the node (or an administrator) alone writes: its own objects, its requests for certificates, its slices of devices, its mirror
//! pods, and the statuses of its other pods, as far as they exceed the rest of the pod. Its other growth is
//! forgotten. Of the accounts of users only requests for certificates are recalled.

use super::super::Store;
use super::{Account, Added, NodeGrowth, accounts};
use crate::engine::context::{LARGE_BODY_BYTES, RequestContext};
use crate::engine::error::RegistryError;
use crate::engine::options::{ListOptions, RevisionMatch};
use crate::engine::scope::Scope;
use apiserver_storage::Entry;
use machinery_meta::{FieldSelector, Predicate};
use machinery_schema::Tree;
use std::sync::Arc;

/// Group, resource and namespace of objects that have a node's name.
const OWN: [(&str, &str, &str); 3] = [
    ("", "nodes", ""),
    ("storage.k8s.io", "csinodes", ""),
    ("coordination.k8s.io", "leases", "kube-node-lease"),
];

/// Annotation of mirror pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The way in which the part of an object that a node wrote is found.
#[derive(Clone, Copy)]
enum Written {
    All,
    /// The status of a pod, and all of a mirror pod.
    Status,
}

impl Written {
    fn bytes(self, object: &Tree, node: &str, size: u64) -> u64 {
        match self {
            Self::All => size,
            Self::Status if is_mirror_pod(object, node) => size,
            Self::Status => object
                .get("status")
                .map_or(0, |status| status.to_json().len() as u64),
        }
    }
}

/// Reports whether a pod is the mirror of a static pod: one that is annotated as such and owned by its node. A tenant's pod
/// that looks like it is charged to the node, in a namespace that is full first.
fn is_mirror_pod(pod: &Tree, node: &str) -> bool {
    let metadata = pod.get("metadata");
    let mut owners = metadata
        .into_iter()
        .flat_map(|metadata| metadata.list("ownerReferences"));
    !pod.str_at(&["metadata", "annotations", MIRROR]).is_empty()
        && owners.any(|owner| owner.str("kind") == "Node" && owner.str("name") == node)
}

impl NodeGrowth {
    /// Reports whether it is known what a node has written.
    fn is_known(&self, node: &str) -> bool {
        self.known.lock().contains(node)
    }

    fn begin_with(&self, node: &str, entry: &Entry, bytes: u64) {
        let size = entry.footprint() as u64;
        let added = Added {
            namespace: (*entry.record.header.key.namespace).into(),
            created: entry.created,
            bytes: bytes.min(size),
            size,
        };
        let mut accounts = self.accounts.lock();
        let account: &mut Account = accounts.entry(node.into()).or_default();
        if added.bytes > 0 && !account.objects.contains_key(&entry.key) {
            account.put(&entry.key, added);
        }
    }
}

impl Store {
    /// Takes up what a node has written before this process began, with its first write. One that is refused, or whose client
    /// leaves meanwhile, is none: the next is the first.
    pub(super) async fn recall_growth(&self, ctx: &RequestContext, node: &str) -> Result<(), RegistryError> {
        let growth = self.registry.node_growth();
        if growth.is_known(node) {
            return Ok(());
        }
        growth
            .requests
            .get_or_try_init(|| self.recall_requests(ctx))
            .await?;
        if accounts::is_node(node) {
            let selector = |field: &str| FieldSelector::parse(&format!("{field}={node}")).unwrap_or_default();
            for own in OWN {
                self.recall(ctx, node, own, selector("metadata.name"), Written::All)
                    .await?;
            }
            let (pods, of_node) = (("", "pods", ""), selector("spec.nodeName"));
            self.recall(ctx, node, pods, of_node.clone(), Written::Status)
                .await?;
            let slices = ("resource.k8s.io", "resourceslices", "");
            self.recall(ctx, node, slices, of_node, Written::All).await?;
        }
        growth.known.lock().insert(node.into());
        Ok(())
    }

    /// Requests for certificates of all users: they are read once, and not for each node again.
    async fn recall_requests(&self, ctx: &RequestContext) -> Result<(), RegistryError> {
        let (group, resource) = ("certificates.k8s.io", "certificatesigningrequests");
        let Some(store) = self.registry.preferred_store(group, resource) else {
            return Ok(());
        };
        let options = ListOptions {
            revision: RevisionMatch::Any,
            ..ListOptions::default()
        };
        let Ok(page) = store.list(&Scope::Cluster, &options).await else {
            return Ok(());
        };
        ctx.heavy_from(page.record_bytes(), LARGE_BODY_BYTES).await?;
        for entry in &page.entries {
            if let Ok(object) = store.decode(entry) {
                let account = accounts::of_user(object.str_at(&["spec", "username"]));
                let growth = self.registry.node_growth();
                growth.begin_with(&account, entry, entry.footprint() as u64);
            }
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn recall(
        &self,
        ctx: &RequestContext,
        node: &str,
        (group, resource, namespace): (&str, &str, &str),
        fields: FieldSelector,
        written: Written,
    ) -> Result<(), RegistryError> {
        let Some(store) = self.registry.preferred_store(group, resource) else {
            return Ok(());
        };
        let options = ListOptions {
            predicate: Predicate::from(fields),
            revision: RevisionMatch::Any,
            ..ListOptions::default()
        };
        // What cannot be read now is not counted: the node is not refused for it.
        let Ok(page) = store.list(&Scope::of(namespace), &options).await else {
            return Ok(());
        };
        ctx.heavy_from(page.record_bytes(), LARGE_BODY_BYTES).await?;
        for entry in &page.entries {
            self.recall_entry(&store, node, entry, written);
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    fn recall_entry(&self, store: &Store, node: &str, entry: &Arc<Entry>, written: Written) {
        if let Ok(object) = store.decode(entry) {
            let bytes = written.bytes(&object, node, entry.footprint() as u64);
            self.registry.node_growth().begin_with(node, entry, bytes);
        }
    }
}
