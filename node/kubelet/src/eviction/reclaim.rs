//! Room that the node takes back before a pod has to end: containers, sandboxes and logs of pods that have ended, and images that
//! no container uses.

use std::collections::HashSet;
use std::time::Duration;

use node_cri::{CriError, v1};

use super::config::REASON;
use crate::containers::files;
use crate::managers::ManagerContext;
use crate::pods::observed::label;
use crate::pods::uid;

/// Upstream's `ContainerGCPeriod`.
const COLLECT_AFTER: Duration = Duration::from_secs(60);

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

/// Removes logs of evicted pods for ever, as upstream's collection of containers does each minute: one that was evicted for what it
/// printed would hold its node's disk for as long as its author does not delete it.
pub(crate) async fn collect_logs(context: ManagerContext) {
    loop {
        context.runtime.sleep(COLLECT_AFTER).await;
        remove_logs(&context, evicted(&context)).await;
    }
}

fn evicted(context: &ManagerContext) -> HashSet<String> {
    let pods = &context.pods;
    let all = pods.list().into_iter();
    let evicted =
        all.filter(|pod| pods.has_ended(uid(pod)) && pods.status(pod).reason.as_deref() == Some(REASON));
    evicted.map(|pod| uid(&pod).to_owned()).collect()
}

async fn remove_logs(context: &ManagerContext, uids: HashSet<String>) {
    if uids.is_empty() {
        return;
    }
    let config = context.config.clone();
    let remove = move || {
        for folder in uids.iter().flat_map(|uid| files::log_folders_of(&config, uid)) {
            // What is left is removed with the pod.
            let _ = node_sys::fs::remove_tree(&folder);
        }
    };
    let _ = context.runtime.blocking(remove).await;
}

/// Removes what the runtime has of pods that have ended, and their logs.
async fn remove_ended_pods(context: &ManagerContext) -> Result<(), CriError> {
    let pods = &context.pods;
    let all = pods.list().into_iter();
    let ended = all.filter(|pod| pods.has_ended(uid(pod)));
    let ended: HashSet<String> = ended.map(|pod| uid(&pod).to_owned()).collect();
    if ended.is_empty() {
        return Ok(());
    }
    let removed = remove_sandboxes(context, &ended).await;
    remove_logs(context, ended).await;
    removed
}

async fn remove_sandboxes(context: &ManagerContext, ended: &HashSet<String>) -> Result<(), CriError> {
    let sandboxes = context
        .workers
        .control
        .cri
        .list_pod_sandbox(v1::ListPodSandboxRequest { filter: None })
        .await?;
    let of_ended = sandboxes.items.into_iter().filter(|sandbox| {
        let uid = sandbox.labels.get(label::POD_UID);
        uid.is_some_and(|uid| ended.contains(uid))
    });
    all(of_ended.map(|sandbox| remove_sandbox(context, sandbox))).await
}

async fn remove_sandbox(context: &ManagerContext, sandbox: v1::PodSandbox) -> Result<(), CriError> {
    // Its containers go with it.
    context.workers.control.remove_sandbox(&sandbox.id).await?;
    if let Some(uid) = sandbox.labels.get(label::POD_UID) {
        context.pods.wake_to_list(uid);
    }
    Ok(())
}

/// Does all of it, and returns the first failure: one that cannot be removed does not keep the others.
async fn all<E>(removals: impl Iterator<Item = impl Future<Output = Result<(), E>>>) -> Result<(), E> {
    let mut outcome = Ok(());
    for removal in removals {
        outcome = outcome.and(removal.await);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::cell::RefCell;

    #[test]
    fn one_sandbox_that_stays_does_not_keep_the_others() {
        let removed = RefCell::new(Vec::new());
        let remove = |id: u8| {
            let removed = &removed;
            async move {
                match id {
                    2 | 3 => return Err(id),
                    _ => removed.borrow_mut().push(id),
                }
                Ok(())
            }
        };
        let outcome = all([1, 2, 3, 4].into_iter().map(remove)).now_or_never();
        assert_eq!(outcome, Some(Err(2)));
        assert_eq!(*removed.borrow(), [1, 4]);
    }
}
