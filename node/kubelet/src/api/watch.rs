//! List, then watch, for ever: the shape every follower of objects has.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use machinery_runtime::Runtime;
use serde::de::DeserializeOwned;

/// First and longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));
/// The server ends a watch after this; upstream's clients ask for five to ten minutes.
const WATCH_SECONDS: u32 = 290;

/// Change that a follower receives.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// Everything there is; what was known before and is not in it has gone.
    All(Vec<K>),
    /// An object appeared or changed.
    Set(K),
    /// An object has gone.
    Gone(K),
    /// The objects could not be listed; the last state stands and the next try comes later.
    Failed(String),
}

/// Follows a selection until the task is ended.
pub(crate) async fn follow<K>(
    runtime: &Runtime,
    api: Api<K>,
    field_selector: Option<String>,
    mut tell: impl FnMut(Change<K>) + Send,
) where
    K: Clone + Debug + DeserializeOwned + kube::Resource + Send + 'static,
{
    let mut pause = BACKOFF.0;
    loop {
        match session(&api, field_selector.as_deref(), &mut tell).await {
            // A watch that ran its time is followed by the next list at once.
            Ok(()) => pause = BACKOFF.0,
            Err(error) => {
                tracing::debug!(error = %error, "watch interrupted");
                tell(Change::Failed(error.to_string()));
                runtime.sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
        }
    }
}

/// One list and the watches that follow from it. Ends well when the server no longer knows our revision.
async fn session<K>(
    api: &Api<K>,
    field_selector: Option<&str>,
    tell: &mut (impl FnMut(Change<K>) + Send),
) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned + kube::Resource + Send + 'static,
{
    let mut list = ListParams::default().match_any();
    list.field_selector = field_selector.map(str::to_string);
    let all = api.list(&list).await?;
    let mut revision = all.metadata.resource_version.clone().unwrap_or_default();
    tell(Change::All(all.items));
    let mut params = WatchParams::default().timeout(WATCH_SECONDS);
    params.field_selector = list.field_selector;
    loop {
        let mut events = api.watch(&params, &revision).await?.boxed();
        while let Some(event) = events.next().await {
            let changed = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Set(object),
                WatchEvent::Deleted(object) => Change::Gone(object),
                WatchEvent::Bookmark(mark) => {
                    revision = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) if status.code == 410 => return Ok(()),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            let (Change::Set(object) | Change::Gone(object)) = &changed else {
                continue;
            };
            if let Some(seen) = &object.meta().resource_version {
                revision.clone_from(seen);
            }
            tell(changed);
        }
    }
}
