//! Shared informers: who watches the same thing shares one watch, one store and one projection per object.
//!
//! A change is applied to the store first and passed to handlers after, in the store's order, from the reflector's
//! task. Handlers are short and synchronous: they map a change to the keys of a work queue. A subscriber that comes
//! late gets the present objects as additions. A handler may read any store but subscribe to none.

use crate::client::Client;
use crate::object::{Object, RawObject, Slices};
use crate::projection::{IndexName, Projection, controlled_by};
use crate::reflector::{self, Sink};
use crate::resource::ListWatch;
use crate::store::Store;
use futures::FutureExt;
use futures::future::BoxFuture;
use machinery_meta::{ObjectHeader, ObjectKey, Revision, Uid};
use machinery_runtime::{Runtime, Scope, Watched};
use parking_lot::{Mutex, RwLock};
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Change of one key: added (no `old`), changed, or removed (no `new`).
#[derive(Debug)]
pub struct Change<P> {
    /// The object before.
    pub old: Option<Arc<Object<P>>>,
    /// The object now.
    pub new: Option<Arc<Object<P>>>,
}

impl<P> Change<P> {
    /// The object now, or as it last was.
    pub fn latest(&self) -> &Arc<Object<P>> {
        self.new
            .as_ref()
            .or(self.old.as_ref())
            .expect("a change has at least one side")
    }

    /// The key that changed.
    pub fn key(&self) -> &ObjectKey {
        self.latest().key()
    }

    /// Both sides that exist, old first.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<Object<P>>> {
        self.old.iter().chain(&self.new)
    }

    /// The object is gone.
    pub fn is_removal(&self) -> bool {
        self.new.is_none()
    }
}

/// The headers of a change, for readers who do not know the projection.
#[derive(Debug)]
pub struct HeaderChange<'a> {
    /// The header before.
    pub old: Option<&'a Arc<ObjectHeader>>,
    /// The header now.
    pub new: Option<&'a Arc<ObjectHeader>>,
}

type Handler<P> = Arc<dyn Fn(&Change<P>) + Send + Sync>;
type ListHandler = Box<dyn Fn() + Send + Sync>;

struct Shared<P: Projection> {
    source: ListWatch,
    runtime: Runtime,
    shares_memory: bool,
    store: RwLock<Store<P>>,
    /// Held while a change is applied and delivered, so that a late subscriber misses none and sees none twice.
    handlers: Mutex<Handlers<P>>,
    synced: Watched<bool>,
    /// The newest revision up to which everything is in the store.
    position: AtomicU64,
    /// The reflector's scope; the reflector holds this struct weakly and ends with it.
    reflector: Mutex<Option<Scope>>,
}

struct Handlers<P> {
    next: u64,
    list: Vec<(u64, Handler<P>)>,
    of_lists: Vec<(u64, ListHandler)>,
}

impl<P: Projection> Shared<P> {
    fn parse(&self, arrived: RawObject) -> Option<Arc<Object<P>>> {
        let RawObject {
            header,
            revision,
            bytes,
        } = arrived;
        let projected = self.catch("projection", &header.key, || P::project(&header, &bytes.joined()))?;
        let projection = match projected {
            Ok(projection) => projection,
            Err(error) => {
                tracing::warn!(resource = %self.source.resource, %error, "an object that cannot be read was left out");
                return None;
            }
        };
        let kept = match (P::KEEP_BYTES, self.shares_memory) {
            (false, _) => Slices::default(),
            (true, true) => bytes.clone(),
            (true, false) => bytes.compact(),
        };
        Some(Arc::new(Object {
            header: Arc::new(header),
            revision,
            projection,
            bytes: kept,
        }))
    }

    fn apply(&self, handlers: &Handlers<P>, change: Change<P>) {
        for (_, handler) in &handlers.list {
            self.catch("informer handler", change.key(), || handler(&change));
        }
    }

    /// Catches a panic that one object makes in a reader: it is logged and counted, and the others are read.
    fn catch<T>(&self, what: &'static str, key: &ObjectKey, act: impl FnOnce() -> T) -> Option<T> {
        let acting = self.runtime.catch(what, async { act() });
        match acting.now_or_never()? {
            Ok(done) => Some(done),
            Err(ended) => {
                tracing::error!(resource = %self.source.resource, %key, %ended, "an object was left out");
                None
            }
        }
    }

    fn put(&self, handlers: &Handlers<P>, object: Arc<Object<P>>) {
        let mut store = self.store.write();
        if store
            .get(object.key())
            .is_some_and(|old| old.revision == object.revision && old.uid() == object.uid())
        {
            return;
        }
        let old = store.put(object.clone());
        drop(store);
        // An object made anew under the same name is a removal and an addition, as upstream's informers deliver it.
        let (old, replaced) = match old {
            Some(old) if old.uid() != object.uid() => (None, Some(old)),
            other => (other, None),
        };
        if let Some(replaced) = replaced {
            self.apply(
                handlers,
                Change {
                    old: Some(replaced),
                    new: None,
                },
            );
        }
        self.apply(
            handlers,
            Change {
                old,
                new: Some(object),
            },
        );
    }

    fn take(&self, handlers: &Handlers<P>, key: &ObjectKey) {
        let old = self.store.write().remove(key);
        if old.is_some() {
            self.apply(handlers, Change { old, new: None });
        }
    }
}

impl<P: Projection> Sink for Shared<P> {
    fn upsert(&self, object: RawObject) {
        let key = object.header.key.clone();
        match self.parse(object) {
            Some(object) => self.put(&self.handlers.lock(), object),
            // What it was before is no longer true, and whoever waits for what it is now would wait for ever.
            None => self.delete(&key),
        }
    }

    fn delete(&self, key: &ObjectKey) {
        let handlers = self.handlers.lock();
        self.take(&handlers, key);
    }

    fn replace(&self, objects: Vec<RawObject>) {
        let objects: Vec<_> = objects
            .into_iter()
            .filter_map(|object| self.parse(object))
            .collect();
        let present: BTreeSet<&ObjectKey> = objects.iter().map(|object| object.key()).collect();
        let handlers = self.handlers.lock();
        handlers.of_lists.iter().for_each(|(_, handler)| handler());
        let gone: Vec<ObjectKey> = {
            let store = self.store.read();
            store
                .objects()
                .map(|object| object.key())
                .filter(|key| !present.contains(key))
                .cloned()
                .collect()
        };
        for key in &gone {
            self.take(&handlers, key);
        }
        for object in objects {
            self.put(&handlers, object);
        }
        self.synced.replace(true);
    }

    fn reached(&self, revision: Revision) {
        self.position.store(revision.0, Ordering::Release);
    }
}

/// A handle on a shared store. The watch ends when the last handle is dropped.
pub struct Informer<P: Projection> {
    shared: Arc<Shared<P>>,
}

impl<P: Projection> Clone for Informer<P> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<P: Projection> fmt::Debug for Informer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = &self.shared.source;
        f.debug_struct("Informer")
            .field("source", source)
            .field("store", &*self.shared.store.read())
            .finish()
    }
}

impl<P: Projection> Informer<P> {
    fn start(source: ListWatch, client: &Client, runtime: &Runtime) -> Self {
        let shared = Arc::new(Shared {
            source: source.clone(),
            runtime: runtime.clone(),
            shares_memory: client.shares_memory(),
            store: RwLock::new(Store::new()),
            handlers: Mutex::new(Handlers {
                next: 0,
                list: Vec::new(),
                of_lists: Vec::new(),
            }),
            synced: Watched::new(false),
            position: AtomicU64::new(0),
            reflector: Mutex::new(None),
        });
        let sink: Weak<dyn Sink> = Arc::downgrade(&(shared.clone() as Arc<dyn Sink>));
        let scope = runtime.child_scope();
        let inside = scope.runtime().clone();
        drop(inside.spawn(
            "reflector",
            reflector::run(client.clone(), inside.clone(), source, sink),
        ));
        *shared.reflector.lock() = Some(scope);
        Self { shared }
    }

    /// Resource and selectors of the watch.
    pub fn source(&self) -> &ListWatch {
        &self.shared.source
    }

    /// The object under a key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<Object<P>>> {
        self.shared.store.read().get(key).cloned()
    }

    /// Every object, in key order.
    pub fn list(&self) -> Vec<Arc<Object<P>>> {
        self.shared.store.read().objects().cloned().collect()
    }

    /// The objects under a value of a declared index, in key order.
    ///
    /// # Panics
    /// When `P::INDEXES` does not declare the index.
    pub fn by_index(&self, name: IndexName, value: &str) -> Vec<Arc<Object<P>>> {
        self.shared
            .store
            .read()
            .by_index(name, value)
            .expect("readers ask only for indexes their projection declares")
    }

    /// The objects that an owner of this namespace controls, in key order: those of its own namespace alone.
    ///
    /// # Panics
    /// When `P::INDEXES` does not declare [`Index::CONTROLLER`](crate::Index::CONTROLLER).
    pub fn controlled(&self, namespace: &str, owner: &Uid) -> Vec<Arc<Object<P>>> {
        self.by_index(IndexName::CONTROLLER, &controlled_by(namespace, owner))
    }

    /// Looks at every object without collecting them; `look` must not call back into the informer.
    pub fn for_each(&self, look: impl FnMut(&Arc<Object<P>>)) {
        self.shared.store.read().objects().for_each(look);
    }

    /// The newest revision up to which everything is in the store: what was written at or before it has been delivered.
    pub fn position(&self) -> Revision {
        Revision(self.shared.position.load(Ordering::Acquire))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.shared.store.read().len()
    }

    /// Reports whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports whether the first list is in the store.
    pub fn has_synced(&self) -> bool {
        self.shared.synced.get()
    }

    /// Waits until the first list is in the store.
    pub async fn synced(&self) {
        self.shared.synced.wait_for(|done| *done).await;
    }

    /// Calls `handler` for every present object now and for every change from here on, until the subscription drops.
    #[must_use = "the handler is removed when the subscription is dropped"]
    pub fn on_change(&self, handler: impl Fn(&Change<P>) + Send + Sync + 'static) -> Subscription {
        let handler: Handler<P> = Arc::new(handler);
        let mut handlers = self.shared.handlers.lock();
        for object in self.list() {
            handler(&Change {
                old: None,
                new: Some(object),
            });
        }
        let id = handlers.next;
        handlers.next += 1;
        handlers.list.push((id, handler));
        let shared = Arc::downgrade(&self.shared);
        Subscription::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.handlers.lock().list.retain(|(own, _)| *own != id);
            }
        })
    }

    /// Calls `handler` before the changes of each list from here on, until the subscription drops: the watch before it is
    /// over, and what came meanwhile may even be an older state (a restore of what the server stores).
    #[must_use = "the handler is removed when the subscription is dropped"]
    pub fn on_list(&self, handler: impl Fn() + Send + Sync + 'static) -> Subscription {
        let mut handlers = self.shared.handlers.lock();
        let id = handlers.next;
        handlers.next += 1;
        handlers.of_lists.push((id, Box::new(handler)));
        let shared = Arc::downgrade(&self.shared);
        Subscription::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.handlers.lock().of_lists.retain(|(own, _)| *own != id);
            }
        })
    }

    /// The keys that changed since they were last taken, each at most once: bounded by the number of objects.
    pub fn dirty_keys(&self) -> DirtyKeys {
        let dirty = Arc::new(Dirty::default());
        let sink = dirty.clone();
        let subscription = self.on_change(move |change| sink.add(change.key()));
        DirtyKeys {
            dirty,
            _subscription: subscription,
        }
    }
}

/// Keeps a handler alive; dropping it removes the handler.
pub struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscription")
    }
}

#[derive(Debug, Default)]
struct Dirty {
    keys: Mutex<BTreeSet<ObjectKey>>,
    changed: Notify,
}

impl Dirty {
    fn add(&self, key: &ObjectKey) {
        self.keys.lock().insert(key.clone());
        self.changed.notify_one();
    }
}

/// See [`Informer::dirty_keys`].
#[derive(Debug)]
pub struct DirtyKeys {
    dirty: Arc<Dirty>,
    _subscription: Subscription,
}

impl DirtyKeys {
    /// Waits for a changed key and takes it; read the object from the informer, it may be gone.
    pub async fn next(&mut self) -> ObjectKey {
        loop {
            if let Some(key) = self.dirty.keys.lock().pop_first() {
                return key;
            }
            self.dirty.changed.notified().await;
        }
    }

    /// Waits until something changed and takes every changed key.
    pub async fn next_batch(&mut self) -> BTreeSet<ObjectKey> {
        loop {
            let keys = std::mem::take(&mut *self.dirty.keys.lock());
            if !keys.is_empty() {
                return keys;
            }
            self.dirty.changed.notified().await;
        }
    }
}

/// A store of any projection, read by its headers (the garbage collector reads all of them this way).
pub trait HeaderStore: Send + Sync {
    /// The header under a key.
    fn header(&self, key: &ObjectKey) -> Option<Arc<ObjectHeader>>;
    /// Reports whether the first list is in the store.
    fn has_synced(&self) -> bool;
    /// Waits until the first list is in the store.
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// As [`Informer::on_change`], with headers.
    fn on_header_change(&self, handler: Box<dyn Fn(&HeaderChange<'_>) + Send + Sync>) -> Subscription;
    /// As [`Informer::on_list`].
    fn on_list(&self, handler: Box<dyn Fn() + Send + Sync>) -> Subscription;
}

impl<P: Projection> HeaderStore for Informer<P> {
    fn header(&self, key: &ObjectKey) -> Option<Arc<ObjectHeader>> {
        self.get(key).map(|object| object.header.clone())
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::synced(self))
    }

    fn on_header_change(&self, handler: Box<dyn Fn(&HeaderChange<'_>) + Send + Sync>) -> Subscription {
        self.on_change(move |change| {
            handler(&HeaderChange {
                old: change.old.as_ref().map(|object| &object.header),
                new: change.new.as_ref().map(|object| &object.header),
            });
        })
    }

    fn on_list(&self, handler: Box<dyn Fn() + Send + Sync>) -> Subscription {
        Self::on_list(self, handler)
    }
}

/// Informer that runs already, for the next reader to share.
struct Known {
    projection: TypeId,
    shared: Weak<dyn Any + Send + Sync>,
    as_headers: Box<dyn Fn() -> Option<Arc<dyn HeaderStore>> + Send + Sync>,
}

/// The informers of one identity.
#[derive(Clone)]
pub struct Informers {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    runtime: Runtime,
    known: Mutex<BTreeMap<ListWatch, Vec<Known>>>,
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.inner.known.lock();
        f.debug_struct("Informers")
            .field("sources", &known.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Informers {
    /// Informers that read with this client's identity and run in this runtime's scope.
    pub fn new(client: Client, runtime: Runtime) -> Self {
        Self {
            inner: Arc::new(Inner {
                client,
                runtime,
                known: Mutex::new(BTreeMap::new()),
            }),
        }
    }

    /// The client they read with.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// The runtime they run in.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// The shared informer of a source, started at the first ask.
    pub fn informer<P: Projection>(&self, source: ListWatch) -> Informer<P> {
        let mut known = self.inner.known.lock();
        let list = known.entry(source.clone()).or_default();
        list.retain(|known| known.shared.strong_count() > 0);
        let found = list.iter().find(|known| known.projection == TypeId::of::<P>());
        let shared = found.and_then(|known| known.shared.upgrade()?.downcast::<Shared<P>>().ok());
        if let Some(shared) = shared {
            return Informer { shared };
        }
        let informer = Informer::<P>::start(source, &self.inner.client, &self.inner.runtime);
        let weak = Arc::downgrade(&informer.shared);
        let any: Weak<dyn Any + Send + Sync> = weak.clone();
        let as_headers = Box::new(move || {
            let shared = weak.upgrade()?;
            Some(Arc::new(Informer { shared }) as Arc<dyn HeaderStore>)
        });
        list.push(Known {
            projection: TypeId::of::<P>(),
            shared: any,
            as_headers,
        });
        informer
    }

    /// The informer of every object of a `k8s-openapi` type.
    pub fn of<K, P>(&self) -> Informer<P>
    where
        K: k8s_openapi::Resource,
        K::Scope: 'static,
        P: Projection,
    {
        self.informer(ListWatch::of::<K>())
    }

    /// Headers of a source: from any store that exists for it, else from one of headers only.
    pub fn headers(&self, source: ListWatch) -> Arc<dyn HeaderStore> {
        let found = {
            let known = self.inner.known.lock();
            known
                .get(&source)
                .and_then(|list| list.iter().find_map(|known| (known.as_headers)()))
        };
        found.unwrap_or_else(|| Arc::new(self.informer::<()>(source)))
    }

    /// Waits until every informer asked for so far has its first list.
    pub async fn synced(&self) {
        let stores: Vec<_> = {
            let known = self.inner.known.lock();
            known
                .values()
                .flatten()
                .filter_map(|known| (known.as_headers)())
                .collect()
        };
        for store in stores {
            store.synced().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::parse_header;
    use k8s_openapi::api::core::v1::Pod;
    use machinery_runtime::Simulation;

    /// A reader that cannot bear one object.
    struct Fragile;

    impl Projection for Fragile {
        fn project(header: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
            assert_ne!(&*header.key.name, "worst", "as told");
            Ok(Self)
        }
    }

    fn raw(name: &str) -> RawObject {
        let json = format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "n", "uid": "{name}", "resourceVersion": "1"}}}}"#
        );
        let (header, revision) = parse_header(json.as_bytes()).unwrap();
        RawObject {
            header,
            revision,
            bytes: Slices::default(),
        }
    }

    #[test]
    fn informer_leaves_out_what_a_reader_cannot_bear_and_goes_on() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let told = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&told);
        let fragile: Handler<Fragile> = Arc::new(|change| assert_ne!(&*change.key().name, "bad", "as told"));
        let other: Handler<Fragile> = Arc::new(move |change| own.lock().push(change.key().name.to_string()));
        let shared = Shared {
            source: ListWatch::of::<Pod>(),
            runtime,
            shares_memory: false,
            store: RwLock::new(Store::new()),
            handlers: Mutex::new(Handlers {
                next: 0,
                list: vec![(0, fragile), (1, other)],
                of_lists: Vec::new(),
            }),
            synced: Watched::new(false),
            position: AtomicU64::new(0),
            reflector: Mutex::new(None),
        };
        shared.replace(["bad", "good", "worst"].map(raw).into());
        shared.upsert(raw("last"));
        let names = |shared: &Shared<Fragile>| -> Vec<String> {
            let store = shared.store.read();
            store.objects().map(|own| own.name().to_owned()).collect()
        };
        assert_eq!(names(&shared), ["bad", "good", "last"]);
        assert_eq!(*told.lock(), ["bad", "good", "last"]);
        assert!(shared.synced.get());
    }
}
