//! Static pods: pods of files in a folder of the node, which run whether or not there is an API server.
//!
//! The [`folder`] is read every two seconds; a file that has changed is made a pod ([`manifest`], [`defaults`]), whose uid is a
//! hash of its content. [`run`] hands pods to their workers and ends those whose file has gone; a changed file is another
//! pod, which begins once the one before it has ended. In the API a static pod is shown by a mirror pod ([`mirror`]), which
//! the node makes, mends and deletes, and never runs.
//!
//! Never: a pod whose file needs something of the API server.

pub(crate) mod defaults;
pub(crate) mod folder;
pub(crate) mod manifest;
pub(crate) mod mirror;
pub(crate) mod mirrors;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;

use crate::managers::ManagerContext;
use crate::pods::{is_static, spec, uid};
use folder::Folder;
pub use folder::StaticPodSource;
use mirrors::{Key, key};

/// Pause between two looks at the folder.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// Keeps the pods of the folder running, for ever. Without a folder there are none, and no mirror pod stays.
pub(crate) async fn run(context: ManagerContext) {
    let source = context.config.static_pods.clone();
    let name = context.config.node_name.clone();
    let folder = source.map(|source| Arc::new(Mutex::new(Folder::new(source, name))));
    loop {
        if let Some(wanted) = read(&context, folder.clone()).await {
            settle(&context, &wanted);
            context.pods.static_pods_known();
        }
        mirror::settle(&context).await;
        context.runtime.sleep(LOOK_AFTER).await;
    }
}

/// The pods of the folder; `None` where it cannot be read now.
async fn read(context: &ManagerContext, folder: Option<Arc<Mutex<Folder>>>) -> Option<Vec<Arc<Pod>>> {
    let Some(folder) = folder else {
        return Some(Vec::new());
    };
    let look = move || folder.lock().read();
    context.runtime.blocking(look).await.ok()?.ok()
}

/// Begins and ends pods, so that those run whose files are there. Of one name only one runs at a time.
fn settle(context: &ManagerContext, wanted: &[Arc<Pod>]) {
    let mut running: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
    for pod in context.pods.list().into_iter().filter(|pod| is_static(pod)) {
        running.insert(key(&pod), pod);
    }
    for pod in wanted {
        match running.remove(&key(pod)) {
            None => context.pods.set_static((**pod).clone()),
            Some(own) if uid(&own) == uid(pod) => {}
            Some(own) => end(context, &own),
        }
    }
    running.values().for_each(|own| end(context, own));
}

/// Ends a pod within its own grace period, as if it were deleted.
fn end(context: &ManagerContext, pod: &Pod) {
    if pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    tracing::info!(pod = %crate::pods::full_name(pod), "the file of a static pod has gone or changed");
    let mut ending = pod.clone();
    ending.metadata.deletion_timestamp = Some(Time(context.runtime.now()));
    ending.metadata.deletion_grace_period_seconds =
        Some(spec(pod).termination_grace_period_seconds.unwrap_or(30));
    context.pods.set_static(ending);
}
