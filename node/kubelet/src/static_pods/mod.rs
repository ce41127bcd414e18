//! Static pods: pods of files in a folder of the node and of a URL, which run whether or not there is an API server.
//!
//! The [`folder`] is read every two seconds, the [`url`] by its own period ([`fetching`]); what has changed is made a pod
//! ([`manifest`], [`defaults`]), whose uid is a hash of its content. [`run`] hands pods to their workers and ends those that have
//! gone from their source; a changed one is another pod, which begins once the one before it has ended. In the API a static pod is
//! shown by a mirror pod ([`mirror`]), which the node makes, mends and deletes, and never runs.
//!
//! Never: a pod that needs something of the API server; remains of pods removed before every source was read.

pub(crate) mod defaults;
mod fetching;
pub(crate) mod folder;
pub(crate) mod manifest;
pub(crate) mod mirror;
pub(crate) mod mirrors;
#[cfg(test)]
mod tests;
pub(crate) mod url;
#[cfg(test)]
mod url_tests;

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
pub use url::StaticPodUrl;
use url::{Look, UrlPods};

/// Interval of reads of the folder.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// Pods of each source, as far as it was read.
#[derive(Debug, Default)]
struct Wanted {
    file: Option<Vec<Arc<Pod>>>,
    http: Option<Vec<Arc<Pod>>>,
}

impl Wanted {
    /// All of them. Of one name that both sources have the file's counts.
    fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.file.iter().flatten().cloned().collect();
        for pod in self.http.iter().flatten() {
            if !pods.iter().any(|own| key(own) == key(pod)) {
                pods.push(pod.clone());
            }
        }
        pods
    }

    fn all_read(&self) -> bool {
        self.file.is_some() && self.http.is_some()
    }
}

/// Keeps the pods of folder and URL running, for ever. Without both there are none, and no mirror pod stays.
pub(crate) async fn run(context: ManagerContext) {
    let wanted = Mutex::new(Wanted::default());
    let name = context.config.node_name.clone();
    let url = context.config.static_pod_url.clone();
    let url = url.and_then(|source| UrlPods::new(source, name));
    futures::join!(
        follow_folder(&context, &wanted),
        follow_url(&context, &wanted, url)
    );
}

async fn follow_folder(context: &ManagerContext, wanted: &Mutex<Wanted>) {
    let source = context.config.static_pods.clone();
    let name = context.config.node_name.clone();
    let folder = source.map(|source| Arc::new(Mutex::new(Folder::new(source, name))));
    loop {
        if let Some(pods) = read(context, folder.clone()).await {
            wanted.lock().file = Some(pods);
            settle(context, &wanted.lock());
        }
        mirror::settle(context).await;
        context.runtime.sleep(LOOK_AFTER).await;
    }
}

async fn follow_url(context: &ManagerContext, wanted: &Mutex<Wanted>, url: Option<UrlPods>) {
    let Some(mut url) = url else {
        wanted.lock().http = Some(Vec::new());
        return;
    };
    loop {
        if let Some(Look::Pods(pods)) = url.look(&context.runtime).await {
            wanted.lock().http = Some(pods);
            settle(context, &wanted.lock());
        }
        context.runtime.sleep(url.period()).await;
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

/// Begins and ends pods, so that those run whose sources have them. Of one name only one runs at a time. Those of a source that
/// was not read yet are not begun, so that none of them is ended.
fn settle(context: &ManagerContext, wanted: &Wanted) {
    let mut running: BTreeMap<Key, Arc<Pod>> = BTreeMap::new();
    for pod in context.pods.list().into_iter().filter(|pod| is_static(pod)) {
        running.insert(key(&pod), pod);
    }
    for pod in &wanted.pods() {
        match running.remove(&key(pod)) {
            None => context.pods.set_static((**pod).clone()),
            Some(own) if uid(&own) == uid(pod) => {}
            Some(own) => end(context, &own),
        }
    }
    running.values().for_each(|own| end(context, own));
    if wanted.all_read() {
        context.pods.static_pods_known();
    }
}

/// Ends a pod within its own grace period, as if it were deleted.
fn end(context: &ManagerContext, pod: &Pod) {
    if pod.metadata.deletion_timestamp.is_some() {
        return;
    }
    tracing::info!(pod = %crate::pods::full_name(pod), "a static pod has gone from its source or changed");
    let mut ending = pod.clone();
    ending.metadata.deletion_timestamp = Some(Time(context.runtime.now()));
    ending.metadata.deletion_grace_period_seconds =
        Some(spec(pod).termination_grace_period_seconds.unwrap_or(30));
    context.pods.set_static(ending);
}
