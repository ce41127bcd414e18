//! Follows the objects of one resource and keeps what is compiled of them: a request reads none of them.
//!
//! All are read before the server answers. After a watch that failed everything is read again; what was known counts until then.

use crate::reader::read_object;
use apiserver_registry::options::WatchOptions;
use apiserver_registry::{Entry, Registry, RegistryError, Scope, WatchEvent, Watcher};
use machinery_meta::Uid;
use machinery_runtime::Runtime;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "admissionregistration.k8s.io";
/// A watch that failed is begun again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A resource, and what becomes of its objects.
pub(crate) trait Compiled: Send + Sync + 'static {
    type Item: Send + Sync + 'static;
    type Problem: Display;

    fn plural(&self) -> &'static str;

    /// Compiles one object.
    fn compile(&self, name: &str, json: &[u8]) -> Result<Arc<Self::Item>, Self::Problem>;

    /// Takes all that are known now, by their names.
    fn publish(&self, known: BTreeMap<String, Arc<Self::Item>>);
}

/// Reads all objects, then follows their changes in a task of the runtime's scope.
pub(crate) async fn start<C: Compiled>(
    registry: &Registry,
    compiled: C,
    runtime: &Runtime,
) -> Result<(), RegistryError> {
    let followed = Arc::new(Followed {
        registry: registry.clone(),
        compiled,
    });
    let mut begun = Some(followed.begin().await?);
    let own = runtime.clone();
    let run = move || Arc::clone(&followed).run(own.clone(), begun.take());
    runtime.keep("configurations of admission", run).detach();
    Ok(())
}

struct Followed<C> {
    registry: Registry,
    compiled: C,
}

/// One generation of an object.
struct Known<T> {
    uid: Uid,
    generation: i64,
    item: Arc<T>,
}

type All<T> = BTreeMap<String, Known<T>>;

impl<C: Compiled> Followed<C> {
    /// A watch, and what is there at its beginning.
    async fn begin(&self) -> Result<(Watcher, All<C::Item>), RegistryError> {
        let store = self.registry.preferred_store(GROUP, self.compiled.plural());
        let store = store.ok_or(RegistryError::NoSuchResource)?;
        let mut watcher = store.watch(&Scope::Cluster, &WatchOptions::default()).await?;
        let mut known = All::new();
        for event in watcher.initial_events() {
            self.take(&mut known, event)?;
        }
        self.publish(&known);
        Ok((watcher, known))
    }

    async fn run(self: Arc<Self>, runtime: Runtime, begun: Option<(Watcher, All<C::Item>)>) {
        let mut begun = begun;
        loop {
            let followed = match begun.take() {
                Some(begun) => self.follow(begun).await,
                None => match self.begin().await {
                    Ok(begun) => self.follow(begun).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = followed {
                tracing::warn!(%error, resource = self.compiled.plural(), "watching configurations of admission failed");
            }
            runtime.sleep(RETRY_PAUSE).await;
        }
    }

    /// One watch, until it ends.
    async fn follow(&self, (mut watcher, mut known): (Watcher, All<C::Item>)) -> Result<(), RegistryError> {
        loop {
            let events = watcher.next().await;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                self.take(&mut known, event)?;
            }
            self.publish(&known);
        }
    }

    fn publish(&self, known: &All<C::Item>) {
        let all = known.iter();
        let all = all.map(|(name, own)| (name.clone(), Arc::clone(&own.item)));
        self.compiled.publish(all.collect());
    }

    fn take(&self, known: &mut All<C::Item>, event: WatchEvent) -> Result<(), RegistryError> {
        match event {
            WatchEvent::Added(entry) | WatchEvent::Modified(entry) => self.compile(known, &entry),
            WatchEvent::Deleted(entry, _) => {
                known.remove(&entry.record.header.key.name);
            }
            WatchEvent::Bookmark { .. } => {}
            WatchEvent::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn compile(&self, known: &mut All<C::Item>, entry: &Entry) {
        let header = &entry.record.header;
        let (name, uid, generation) = (&header.key.name, &header.uid, header.generation);
        let same = |own: &Known<C::Item>| own.uid == *uid && own.generation == generation;
        if known.get(name).is_some_and(same) {
            return;
        }
        match self.compiled.compile(name, &read_object(entry).json) {
            Ok(item) => {
                let uid = uid.clone();
                let own = Known {
                    uid,
                    generation,
                    item,
                };
                drop(known.insert(name.clone(), own));
            }
            // What was known of it goes on: what guards does not go without a word.
            Err(error) => {
                tracing::error!(%error, name, resource = self.compiled.plural(), "a configuration of admission cannot be read");
            }
        }
    }
}
