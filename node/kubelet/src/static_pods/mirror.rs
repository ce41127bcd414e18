//! Mirror pods: what the API shows of static pods. Decisions are pure; a mirror pod has the spec and the status of its
//! static pod, and the node as its owner.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};

use super::mirrors::key;
use crate::managers::ManagerContext;
use crate::pods::{CONFIG_HASH, CONFIG_MIRROR, full_name, is_static, name, namespace};

/// An action on a mirror pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MirrorAction {
    /// Creates the mirror of a static pod.
    Create(Arc<Pod>),
    /// Deletes a mirror: its static pod has gone or changed, or a client deletes it.
    Delete(Arc<Pod>),
}

/// Decides for the static pods of the node and the mirror pods there are. A pod that is ending is shown until it has ended,
/// as upstream's. Before all static pods are known, mirrors of others stay.
pub(crate) fn plan(statics: &[Arc<Pod>], mirrors: &[Arc<Pod>], all_known: bool) -> Vec<MirrorAction> {
    let fits = |mirror: &Arc<Pod>| {
        let mut named = statics.iter().filter(|own| key(own) == key(mirror));
        !is_ending(mirror) && named.any(|own| is_mirror_of(mirror, own))
    };
    let is_named = |mirror: &Arc<Pod>| statics.iter().any(|own| key(own) == key(mirror));
    let stale = mirrors
        .iter()
        .filter(|mirror| !fits(mirror) && (all_known || is_named(mirror)));
    let is_missing = |own: &&Arc<Pod>| !mirrors.iter().any(|mirror| key(mirror) == key(own));
    let missing = statics.iter().filter(|own| !is_ending(own)).filter(is_missing);
    let create = missing.cloned().map(MirrorAction::Create);
    stale.cloned().map(MirrorAction::Delete).chain(create).collect()
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    annotation(mirror, CONFIG_MIRROR) == annotation(pod, CONFIG_HASH)
}

/// The mirror of a static pod, as it is created.
pub(crate) fn mirror_of(pod: &Pod, node: &Node) -> Option<Pod> {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone()?,
        uid: node.metadata.uid.clone().filter(|uid| !uid.is_empty())?,
        controller: Some(true),
        block_owner_deletion: None,
    };
    let mut mirror = pod.clone();
    let hash = annotation(pod, CONFIG_HASH).unwrap_or_default().to_owned();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![owner]);
    mirror.metadata.uid = None;
    mirror.status = None;
    Some(mirror)
}

/// Carries a plan out; what fails is tried again with the next look.
pub(crate) async fn settle(context: &ManagerContext) {
    let pods = context.pods.list();
    let statics: Vec<Arc<Pod>> = pods.into_iter().filter(|pod| is_static(pod)).collect();
    // Before the API server was read it is unknown which mirrors there are.
    if !context.pods.is_listed() {
        return;
    }
    let node = context.workers.node.lock().clone();
    let client = &context.client;
    for action in plan(&statics, &context.workers.mirrors.all(), context.pods.is_synced()) {
        let outcome = match &action {
            MirrorAction::Create(pod) => create(client, pod, &node).await,
            MirrorAction::Delete(pod) => delete(client, pod).await,
        };
        if let Err(error) = outcome {
            let (MirrorAction::Create(pod) | MirrorAction::Delete(pod)) = &action;
            tracing::debug!(pod = %full_name(pod), %error, "mirror pod not settled");
        }
    }
}

async fn create(client: &kube::Client, pod: &Pod, node: &Node) -> Result<(), kube::Error> {
    let Some(mirror) = mirror_of(pod, node) else {
        return Ok(());
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace(pod));
    api.create(&PostParams::default(), &mirror).await.map(drop)
}

async fn delete(client: &kube::Client, mirror: &Pod) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace(mirror));
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: mirror.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name(mirror), &params).await {
        // It has gone, or another is there.
        Err(kube::Error::Api(refused)) if refused.code == 404 || refused.code == 409 => Ok(()),
        outcome => outcome.map(drop),
    }
}
