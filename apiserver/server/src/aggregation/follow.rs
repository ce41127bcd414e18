//! Follows APIServices, and gives each extension its tasks.

use super::table::{ApiService, Extension, Table};
use super::{Aggregation, availability, discovery};
use crate::startup::Startup;
use apiserver_registry::options::WatchOptions;
use apiserver_registry::{Entry, RegistryError, Scope, WatchEvent, Watcher};
use machinery_runtime::Scope as Tasks;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";
/// A watch that failed is begun again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Reads all APIServices, then follows their changes in a task of the runtime's scope.
pub(crate) async fn start(facts: &Startup) -> Result<(), RegistryError> {
    let mut follower = Follower::new(facts);
    let mut begun = Some((follower.begin().await?, follower));
    let facts = facts.clone();
    let runtime = facts.core.runtime.clone();
    let run = move || run(facts.clone(), begun.take());
    runtime.keep("API services", run).detach();
    Ok(())
}

async fn run(facts: Startup, begun: Option<(Watcher, Follower)>) {
    let (mut watcher, mut follower) = match begun {
        Some((watcher, follower)) => (Some(watcher), follower),
        None => (None, Follower::new(&facts)),
    };
    loop {
        let begun = match watcher.take() {
            Some(watcher) => Ok(watcher),
            None => follower.begin().await,
        };
        let followed = match begun {
            Ok(watcher) => follower.follow(watcher).await,
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            tracing::warn!(%error, "watching API services failed");
        }
        facts.core.runtime.sleep(RETRY_PAUSE).await;
    }
}

/// The APIServices that are known, and the tasks of their extensions.
struct Follower {
    facts: Startup,
    aggregation: Arc<Aggregation>,
    known: BTreeMap<String, Arc<ApiService>>,
    tasks: BTreeMap<String, (Arc<Extension>, Tasks)>,
}

impl Follower {
    fn new(facts: &Startup) -> Self {
        Self {
            facts: facts.clone(),
            aggregation: Arc::clone(&facts.core.aggregation),
            known: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }

    /// A watch, and what is there at its beginning.
    async fn begin(&mut self) -> Result<Watcher, RegistryError> {
        let registry = &self.facts.core.registry;
        let store = registry.preferred_store(GROUP, PLURAL);
        let store = store.ok_or(RegistryError::NoSuchResource)?;
        let mut watcher = store.watch(&Scope::Cluster, &WatchOptions::default()).await?;
        let before = std::mem::take(&mut self.known);
        for event in watcher.initial_events() {
            let (WatchEvent::Added(entry) | WatchEvent::Modified(entry)) = event else {
                continue;
            };
            let name = entry.record.header.key.name.to_string();
            self.read(&entry, before.get(&name).cloned());
        }
        self.publish();
        Ok(watcher)
    }

    /// One watch, until it ends.
    async fn follow(&mut self, mut watcher: Watcher) -> Result<(), RegistryError> {
        loop {
            let events = watcher.next().await;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                match event {
                    WatchEvent::Added(entry) | WatchEvent::Modified(entry) => {
                        let name = entry.record.header.key.name.to_string();
                        let known = self.known.remove(&name);
                        self.read(&entry, known);
                    }
                    WatchEvent::Deleted(entry, _) => {
                        self.known.remove(&*entry.record.header.key.name);
                    }
                    WatchEvent::Bookmark { .. } => {}
                    WatchEvent::Failed(error) => return Err(error),
                }
            }
            self.publish();
        }
    }

    fn read(&mut self, entry: &Entry, known: Option<Arc<ApiService>>) {
        let identity = &self.aggregation.identity;
        match ApiService::read(entry, known.as_deref(), identity) {
            Ok(own) => {
                let was_available = known.as_ref().is_some_and(|known| known.is_available);
                if let Some(extension) = own
                    .extension
                    .as_ref()
                    .filter(|_| was_available != own.is_available)
                {
                    extension.changed.notify_waiters();
                }
                self.known.insert(own.name.clone(), Arc::new(own));
            }
            Err(error) => {
                let name = &entry.record.header.key.name;
                tracing::error!(%error, name, "an API service cannot be read");
                if let Some(known) = known {
                    self.known.insert(known.name.clone(), known);
                }
            }
        }
    }

    fn publish(&mut self) {
        let table = Table::new(self.known.clone());
        self.aggregation.table.store(Arc::new(table));
        self.aggregation.show();
        let wanted = |name: &String, extension: &Arc<Extension>| {
            let own = self.known.get(name).and_then(|own| own.extension.as_ref());
            own.is_some_and(|own| Arc::ptr_eq(own, extension))
        };
        // Dropped, the scope of a task ends it.
        self.tasks.retain(|name, (extension, _)| wanted(name, extension));
        for (name, own) in &self.known {
            let Some(extension) = &own.extension else { continue };
            if !self.tasks.contains_key(name) {
                let tasks = self.begin_tasks(extension);
                self.tasks.insert(name.clone(), (Arc::clone(extension), tasks));
            }
        }
    }

    fn begin_tasks(&self, extension: &Arc<Extension>) -> Tasks {
        let scope = self.facts.core.runtime.child_scope();
        let runtime = scope.runtime();
        let (facts, own) = (self.facts.clone(), Arc::clone(extension));
        let run = move || availability::keep(facts.clone(), Arc::clone(&own));
        runtime.keep("availability of an API service", run).detach();
        let (aggregation, own) = (Arc::clone(&self.aggregation), Arc::clone(extension));
        let run = move || discovery::keep(Arc::clone(&aggregation), Arc::clone(&own));
        runtime.keep("discovery of an API service", run).detach();
        scope
    }
}
