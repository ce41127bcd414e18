//! Lets authentication, authorization and admission read objects from the registry.

use apiserver_registry::options::{ListOptions, Predicate, RevisionMatch};
use apiserver_registry::{Registry, Scope};
use apiserver_storage::{Entry, Interest, Prefix, StorageError, WatchRequest};
use machinery_meta::reader::{ObjectReader, ReadError, ReadFuture, ReadObject};
use machinery_meta::{FieldSelector, GroupResource, ObjectKey};
use machinery_runtime::Runtime;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The resources whose changes are counted: what RBAC compiles.
const COUNTED: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
const COUNTED_GROUP: &str = "rbac.authorization.k8s.io";
/// How many changes are taken at once; only their number matters.
const BATCH: usize = 256;
/// A watch that failed is begun again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct RegistryReader {
    registry: Registry,
    counters: HashMap<GroupResource, Arc<AtomicU64>>,
    /// For resources nobody counts: every question gets another number.
    uncounted: AtomicU64,
}

impl fmt::Debug for RegistryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryReader").finish_non_exhaustive()
    }
}

impl RegistryReader {
    /// Begins to count changes, in a task of the runtime's scope.
    pub(crate) fn start(registry: &Registry, runtime: &Runtime) -> Arc<Self> {
        let mut counters = HashMap::new();
        let mut watched = Vec::new();
        for plural in COUNTED {
            let Some(store) = registry.preferred_store(COUNTED_GROUP, plural) else {
                continue;
            };
            let Ok(prefix) = Prefix::parse(&store.row.collection("")) else {
                continue;
            };
            let counter = Arc::new(AtomicU64::new(1));
            counters.insert(GroupResource::new(COUNTED_GROUP, plural), Arc::clone(&counter));
            watched.push((prefix, counter));
        }
        let task = count_changes(registry.clone(), runtime.clone(), watched);
        runtime.spawn("rbac-generations", task).detach();
        Arc::new(Self {
            registry: registry.clone(),
            counters,
            uncounted: AtomicU64::new(1),
        })
    }

    fn no_such(resource: &GroupResource, key: &str) -> ReadError {
        ReadError {
            resource: resource.to_string(),
            key: key.to_owned(),
            cause: "not served".to_owned(),
        }
    }
}

/// Moves the counter of a prefix whenever something below it has changed.
async fn count_changes(registry: Registry, runtime: Runtime, watched: Vec<(Prefix, Arc<AtomicU64>)>) {
    loop {
        let ended = follow(&registry, &watched).await;
        // Whatever was missed in between: everything is read again.
        watched.iter().for_each(|(_, counter)| bump(counter));
        if !matches!(ended, StorageError::Compacted { .. }) {
            tracing::warn!(error = %ended, "watching for changes of roles and bindings");
        }
        runtime.sleep(RETRY_PAUSE).await;
    }
}

async fn follow(registry: &Registry, watched: &[(Prefix, Arc<AtomicU64>)]) -> StorageError {
    let storage = registry.storage();
    let after = match storage.current_revision().await {
        Ok(revision) => revision,
        Err(error) => return error,
    };
    let interests = watched
        .iter()
        .map(|(prefix, _)| Interest::prefix(prefix.clone()))
        .collect();
    let mut cursor = match storage.watch(WatchRequest { interests, after }).await {
        Ok(cursor) => cursor,
        Err(error) => return error,
    };
    // Whatever changed before the watch began.
    watched.iter().for_each(|(_, counter)| bump(counter));
    loop {
        match cursor.next_batch(BATCH).await {
            Ok(events) => {
                for event in events {
                    watched
                        .iter()
                        .filter(|(prefix, _)| prefix.contains(&event.key))
                        .for_each(|(_, c)| bump(c));
                }
            }
            Err(error) => return error,
        }
    }
}

fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Release);
}

/// The object's JSON without type meta.
fn read_object(entry: &Entry) -> ReadObject {
    let [_, head, tail] = &entry.record.parts;
    let revision = entry.revision.to_string();
    let mut json = Vec::with_capacity(head.len() + tail.len() + revision.len() + 3);
    json.push(b'{');
    for part in [&head[..], b"\"", revision.as_bytes(), b"\"", &tail[..]] {
        json.extend_from_slice(part);
    }
    ReadObject {
        header: Arc::clone(&entry.record.header),
        json,
    }
}

impl ObjectReader for RegistryReader {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        key: &'a ObjectKey,
    ) -> ReadFuture<'a, Option<ReadObject>> {
        Box::pin(async move {
            let store = self
                .registry
                .preferred_store(&resource.group, &resource.resource)
                .ok_or_else(|| Self::no_such(resource, &key.name))?;
            match store
                .get(&Scope::of(&key.namespace), &key.name, RevisionMatch::Any)
                .await
            {
                Ok(entry) => Ok(Some(read_object(&entry))),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(failed(resource, &key.to_string(), &error)),
            }
        })
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move {
            let everything = FieldSelector::everything();
            self.list_where(resource, namespace, &everything).await
        })
    }

    fn list_where<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        selector: &'a FieldSelector,
    ) -> ReadFuture<'a, Vec<ReadObject>> {
        Box::pin(async move {
            let store = self
                .registry
                .preferred_store(&resource.group, &resource.resource)
                .ok_or_else(|| Self::no_such(resource, ""))?;
            let predicate = Predicate {
                fields: selector.clone(),
                ..Predicate::default()
            };
            let options = ListOptions {
                predicate,
                revision: RevisionMatch::Any,
                ..ListOptions::default()
            };
            let page = store
                .list(&Scope::of(namespace), &options)
                .await
                .map_err(|error| failed(resource, namespace, &error))?;
            Ok(page.entries.iter().map(|entry| read_object(entry)).collect())
        })
    }

    fn generation(&self, resource: &GroupResource) -> u64 {
        match self.counters.get(resource) {
            Some(counter) => counter.load(Ordering::Acquire),
            None => self.uncounted.fetch_add(1, Ordering::Relaxed),
        }
    }
}

fn failed(resource: &GroupResource, key: &str, error: &apiserver_registry::RegistryError) -> ReadError {
    ReadError {
        resource: resource.to_string(),
        key: key.to_owned(),
        cause: error.to_string(),
    }
}
