//! Follows the objects of one resource and keeps what is compiled of them: a request reads none of them.
//!
//! All are read before the server answers. After a watch that failed everything is read again; what was known counts until then.

use crate::reader::read_object;
use apiserver_registry::{Entry, Followed, Follower, ObjectChange, Registry, RegistryError, Scope, Store};
use machinery_meta::{Predicate, Uid};
use machinery_runtime::Runtime;
use std::collections::{BTreeMap, BTreeSet};
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
    let store = registry.preferred_store(GROUP, compiled.plural());
    let store = store.ok_or(RegistryError::NoSuchResource)?;
    let compiled = Arc::new(compiled);
    let mut reader = Reader::new(&store, &compiled);
    let all = reader.follower.begin().await?;
    reader.take(Followed::All(all));
    let mut begun = Some(reader);
    let run = move || {
        let reader = begun.take();
        reader.unwrap_or_else(|| Reader::new(&store, &compiled)).run()
    };
    runtime.keep("configurations of admission", run).detach();
    Ok(())
}

/// Objects that were compiled, and where their changes come from.
struct Reader<C: Compiled> {
    compiled: Arc<C>,
    follower: Follower,
    known: BTreeMap<String, Known<C::Item>>,
}

/// One generation of an object.
struct Known<T> {
    uid: Uid,
    generation: i64,
    item: Arc<T>,
}

impl<C: Compiled> Reader<C> {
    fn new(store: &Store, compiled: &Arc<C>) -> Self {
        Self {
            compiled: Arc::clone(compiled),
            follower: store.follow(Scope::Cluster, Predicate::default(), RETRY_PAUSE),
            known: BTreeMap::new(),
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
                ObjectChange::Set(entry) => self.compile(&entry),
                ObjectChange::Gone(entry) => {
                    self.known.remove(&*entry.record.header.key.name);
                }
            }
        }
        let all = self.known.iter();
        let all = all.map(|(name, own)| (name.clone(), Arc::clone(&own.item)));
        self.compiled.publish(all.collect());
    }

    fn compile(&mut self, entry: &Entry) {
        let header = &entry.record.header;
        let (name, uid, generation) = (&header.key.name, &header.uid, header.generation);
        let same = |own: &Known<C::Item>| own.uid == *uid && own.generation == generation;
        if self.known.get(&**name).is_some_and(same) {
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
                drop(self.known.insert(name.to_string(), own));
            }
            // What was known of it goes on: what guards does not go without a word.
            Err(error) => {
                tracing::error!(%error, name, resource = self.compiled.plural(), "a configuration of admission cannot be read");
            }
        }
    }
}
