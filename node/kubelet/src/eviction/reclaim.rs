//! Room that the node takes back before a pod has to end: containers, sandboxes and logs of pods that have ended, and images that
//! no container uses.

use std::collections::HashSet;

use node_cri::{CriError, v1};

use crate::containers::files;
use crate::managers::ManagerContext;
use crate::pods::observed::label;
use crate::pods::uid;

/// Takes back what there is on the disks of a signal.
pub(crate) async fn reclaim(context: &ManagerContext) {
    if let Err(error) = remove_ended_pods(context).await {
        tracing::warn!(error = %error.message(), "containers of ended pods not removed");
    }
    if let Err(error) = context
        .workers
        .control
        .images
        .remove_unused(&context.config.image_collection)
        .await
    {
        tracing::warn!(error, "unused images not removed");
    }
}

/// Removes what the runtime has of pods that have ended, and their logs, as upstream's: one that was evicted for what it printed would
/// hold its node's disk for as long as its author does not delete it.
async fn remove_ended_pods(context: &ManagerContext) -> Result<(), CriError> {
    let ended: HashSet<String> = context
        .pods
        .list()
        .iter()
        .filter(|pod| context.pods.has_ended(uid(pod)))
        .map(|pod| uid(pod).to_owned())
        .collect();
    if ended.is_empty() {
        return Ok(());
    }
    let control = &context.workers.control;
    let sandboxes = control
        .cri
        .list_pod_sandbox(v1::ListPodSandboxRequest { filter: None })
        .await?;
    let of_ended = sandboxes.items.into_iter().filter(|sandbox| {
        let uid = sandbox.labels.get(label::POD_UID);
        uid.is_some_and(|uid| ended.contains(uid))
    });
    for sandbox in of_ended {
        // Its containers go with it.
        control.remove_sandbox(&sandbox.id).await?;
        if let Some(uid) = sandbox.labels.get(label::POD_UID) {
            context.pods.wake_to_list(uid);
        }
    }
    let config = context.config.clone();
    let remove = move || {
        for folder in ended.iter().flat_map(|uid| files::log_folders_of(&config, uid)) {
            // What is left is removed with the pod.
            let _ = node_sys::fs::remove_tree(&folder);
        }
    };
    let _ = context.runtime.blocking(remove).await;
    Ok(())
}
