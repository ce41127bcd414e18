//! Changes of roles, bindings, pods and volumes, handed to the authorizers: RBAC's index and the index of what nodes
//! need.
//!
//! Everything is read once before the server answers; from then on each change is applied on its own, in order. After a
//! watch that failed everything is read again.

use crate::reader::read_object;
use apiserver_auth::authz::node::NodeIndex;
use apiserver_auth::authz::rbac::{self, RbacAuthorizer};
use apiserver_registry::options::{ListOptions, RevisionMatch};
use apiserver_registry::{ListPage, Registry, RegistryError, Scope};
use apiserver_storage::{Entry, Event, Prefix, StorageError, WatchFilter, WatchRequest};
use machinery_meta::{GroupResource, Revision};
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const PODS: &str = "pods";
/// Kinds that decide what a node may read.
const OF_NODES: [&str; 2] = [PODS, "persistentvolumes"];
/// Changes taken at once.
const BATCH: usize = 256;
/// A start that waits longer for what it has written itself ends.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(30);
/// A watch that failed is begun again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct AuthorizationFeed {
    pub(crate) registry: Registry,
    pub(crate) rbac: Arc<RbacAuthorizer>,
    pub(crate) nodes: Arc<NodeIndex>,
    pub(crate) runtime: Runtime,
    /// Changes up to here are in both indexes.
    pub(crate) applied: watch::Sender<Revision>,
}

/// A resource as it was read.
struct Followed {
    resource: GroupResource,
    prefix: Prefix,
    /// Changes up to here are in what was read.
    revision: Revision,
}

impl AuthorizationFeed {
    /// Reads everything, then follows changes in a task of the runtime's scope.
    pub(crate) async fn start(self: Arc<Self>) -> Result<(), RegistryError> {
        let mut followed = Some(self.load().await?);
        let runtime = self.runtime.clone();
        let run = move || Arc::clone(&self).run(followed.take());
        runtime.keep("authorization-feed", run).detach();
        Ok(())
    }

    /// Waits for what is stored now: what the start-up steps wrote counts before the server says that it is ready.
    ///
    /// The task that follows changes applies them: a list that replaced the indexes here might be older than they are.
    pub(crate) async fn catch_up(&self) -> Result<(), RegistryError> {
        let mut newest = Revision::ZERO;
        self.read(|_, page| {
            let revisions = page.entries.iter().map(|entry| entry.revision);
            newest = revisions.fold(newest, Revision::max);
        })
        .await?;
        let mut applied = self.applied.subscribe();
        let reached = self
            .runtime
            .timeout(CAUGHT_UP_WITHIN, applied.wait_for(|applied| *applied >= newest));
        match reached.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(RegistryError::Internal(format!(
                "roles, bindings, pods and volumes of revision {newest} are not followed after {CAUGHT_UP_WITHIN:?}"
            ))),
        }
    }

    /// Reads everything and replaces the indexes.
    async fn load(&self) -> Result<Vec<Followed>, RegistryError> {
        let followed = self
            .read(|resource, page| self.replace(resource, &page.entries))
            .await?;
        if let Some(first) = followed.iter().map(|own| own.revision).min() {
            self.applied.send_replace(first);
        }
        Ok(followed)
    }

    async fn read(
        &self,
        mut each: impl FnMut(&GroupResource, &ListPage),
    ) -> Result<Vec<Followed>, RegistryError> {
        let grants = rbac::RESOURCES.map(|plural| GroupResource::new(rbac::GROUP, plural));
        let mut followed = Vec::new();
        for resource in grants
            .into_iter()
            .chain(OF_NODES.map(|plural| GroupResource::new("", plural)))
        {
            let Some(store) = self.registry.preferred_store(&resource.group, &resource.resource) else {
                continue;
            };
            let options = ListOptions {
                revision: RevisionMatch::MostRecent,
                ..ListOptions::default()
            };
            let page = store.list(&Scope::of(""), &options).await?;
            each(&resource, &page);
            let prefix = Prefix::parse(&store.row.collection(""))
                .map_err(|error| RegistryError::Internal(error.to_string()))?;
            followed.push(Followed {
                resource,
                prefix,
                revision: page.revision,
            });
        }
        Ok(followed)
    }

    fn replace(&self, resource: &GroupResource, entries: &[Arc<Entry>]) {
        if resource.group == rbac::GROUP {
            let objects = entries
                .iter()
                .map(|entry| (&entry.record.header.key, read_object(entry).json));
            self.rbac.replace(resource, objects);
        } else if resource.resource == PODS {
            let pods = entries.iter();
            self.nodes
                .replace_pods(pods.map(|entry| (&*entry.record.header, entry.revision)));
        } else {
            let volumes = entries.iter().map(|entry| {
                let key = entry.record.header.key.clone();
                (key, entry.revision, read_object(entry).json)
            });
            self.nodes.replace_volumes(volumes);
        }
    }

    /// Follows what was read; without, reads it first.
    async fn run(self: Arc<Self>, followed: Option<Vec<Followed>>) {
        let mut followed = match followed {
            Some(followed) => followed,
            None => self.load_again().await,
        };
        loop {
            let ended = self.follow(&followed).await;
            if matches!(ended, StorageError::Closed) {
                return;
            }
            if !matches!(ended, StorageError::Compacted { .. }) {
                tracing::warn!(error = %ended, "watching for changes of roles, bindings, pods and volumes");
            }
            followed = self.load_again().await;
        }
    }

    async fn load_again(&self) -> Vec<Followed> {
        loop {
            self.runtime.sleep(RETRY_PAUSE).await;
            match self.load().await {
                Ok(followed) => return followed,
                Err(error) => tracing::warn!(%error, "reading roles, bindings, pods and volumes"),
            }
        }
    }

    async fn follow(&self, followed: &[Followed]) -> StorageError {
        let interests = followed
            .iter()
            .map(|own| WatchFilter::prefix(own.prefix.clone()))
            .collect();
        let Some(after) = followed.iter().map(|own| own.revision).min() else {
            return std::future::pending().await;
        };
        let watch = self.registry.stored().watch(WatchRequest { interests, after });
        let mut cursor = match watch.await {
            Ok(cursor) => cursor,
            Err(error) => return error,
        };
        loop {
            match cursor.next_batch(BATCH).await {
                Ok(events) => {
                    events.iter().for_each(|event| self.apply(followed, event));
                    if let Some(last) = events.last() {
                        self.applied
                            .send_modify(|applied| *applied = last.revision.max(*applied));
                    }
                }
                Err(error) => return error,
            }
        }
    }

    fn apply(&self, followed: &[Followed], event: &Event) {
        let of_event = |own: &&Followed| own.prefix.contains(&event.key) && event.revision > own.revision;
        let Some(own) = followed.iter().find(of_event) else {
            return;
        };
        let header = &event.object().record.header;
        if own.resource.group == rbac::GROUP {
            let json = event.entry.as_ref().map(|entry| read_object(entry).json);
            self.rbac.apply(&own.resource, &header.key, json.as_deref());
            return;
        }
        match (&event.entry, own.resource.resource == PODS) {
            (Some(_), true) => self.nodes.put_pod(header, event.revision),
            (None, true) => self.nodes.remove_pod(&header.key),
            (Some(entry), false) => {
                let json = read_object(entry).json;
                self.nodes.put_volume(&header.key, event.revision, &json);
            }
            (None, false) => self.nodes.remove_volume(&header.key),
        }
    }
}
