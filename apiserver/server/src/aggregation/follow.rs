//! Follows APIServices, and gives each extension its tasks.

use super::table::{ApiService, Extension, Table};
use super::{Aggregation, availability, discovery};
use crate::startup::Startup;
use apiserver_registry::{Entry, Followed, Follower, ObjectChange, RegistryError, Scope, Store};
use machinery_meta::Predicate;
use machinery_runtime::Scope as Tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";
/// A watch that failed is begun again after this pause.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Reads all APIServices, then follows their changes in a task of the runtime's scope.
pub(crate) async fn start(facts: &Startup) -> Result<(), RegistryError> {
    let store = facts.core.registry.preferred_store(GROUP, PLURAL);
    let store = store.ok_or(RegistryError::NoSuchResource)?;
    let mut reader = Reader::new(facts, &store);
    let all = reader.follower.begin().await?;
    reader.take(Followed::All(all));
    let (facts, mut begun) = (facts.clone(), Some(reader));
    let runtime = facts.core.runtime.clone();
    let run = move || {
        let reader = begun.take();
        reader.unwrap_or_else(|| Reader::new(&facts, &store)).run()
    };
    runtime.keep("API services", run).detach();
    Ok(())
}

/// The APIServices that are known, and the tasks of their extensions.
struct Reader {
    facts: Startup,
    follower: Follower,
    aggregation: Arc<Aggregation>,
    known: BTreeMap<String, Arc<ApiService>>,
    tasks: BTreeMap<String, (Arc<Extension>, Tasks)>,
}

impl Reader {
    fn new(facts: &Startup, store: &Store) -> Self {
        Self {
            facts: facts.clone(),
            follower: store.follow(Scope::Cluster, Predicate::default(), RETRY_PAUSE),
            aggregation: Arc::clone(&facts.core.aggregation),
            known: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        loop {
            let followed = self.follower.next().await;
            self.take(followed);
        }
    }

    fn take(&mut self, followed: Followed) {
        if let Followed::All(entries) = &followed {
            let present = entries.iter().map(|entry| &*entry.record.header.key.name);
            let present: BTreeSet<&str> = present.collect();
            self.known.retain(|name, _| present.contains(&**name));
        }
        for change in followed.changes() {
            match change {
                ObjectChange::Set(entry) => self.read(&entry),
                ObjectChange::Gone(entry) => {
                    self.known.remove(&*entry.record.header.key.name);
                }
            }
        }
        self.publish();
    }

    fn read(&mut self, entry: &Entry) {
        let known = self.known.remove(&*entry.record.header.key.name);
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
