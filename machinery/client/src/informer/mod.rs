//! Shared informers: users of the same resource share one watch, one store and one projection per object.
//!
//! A change is applied to the store first and passed to handlers after, in the store's order, from the reflector's
//! task. Handlers are short and synchronous: they map a change to the keys of a work queue. A subscriber that comes
//! late gets the present objects as additions. A handler may read any store but subscribe to none.

mod informers;
mod shared;
mod subscription;

pub use informers::Informers;
pub use subscription::{DirtyKeys, Subscription};

use crate::client::Client;
use crate::header_store::Origin;
use crate::object::Object;
use crate::projection::{IndexName, Projection, controlled_by};
use crate::reflector::{self, Sink};
use crate::resource::ListWatch;
use machinery_meta::{ObjectKey, Revision, Uid};
use machinery_runtime::Runtime;
use shared::{Handler, Handlers, ListHandler, Shared};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use subscription::Dirty;

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

    /// The sides that exist, old first.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<Object<P>>> {
        self.old.iter().chain(&self.new)
    }

    /// The object is gone.
    pub fn is_removal(&self) -> bool {
        self.new.is_none()
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
        let shared = Shared::new(source.clone(), runtime.clone(), client.shares_memory());
        let shared = Arc::new(shared);
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

    pub(crate) fn origin(&self) -> Arc<Origin> {
        Arc::clone(&self.shared.origin)
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
    /// An index that `P::INDEXES` does not declare.
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
    /// `P::INDEXES` without [`Index::CONTROLLER`](crate::Index::CONTROLLER).
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
        // Held from the first call to the registration: deliveries take this lock too, so no change falls in
        // between and none comes twice.
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
                // Weak: a subscription that its owner forgot must not keep the informer and its watch alive.
                shared.handlers.lock().list.retain(|(own, _)| *own != id);
            }
        })
    }

    /// Calls `handler` before the changes of each list from here on, until the subscription drops: the watch before it is
    /// over, and what came meanwhile may even be an older state (a restore of what the server stores).
    #[must_use = "the handler is removed when the subscription is dropped"]
    pub fn on_list(&self, handler: impl Fn() + Send + Sync + 'static) -> Subscription {
        self.follow_lists(|handlers| &mut handlers.before_lists, handler)
    }

    /// Calls `handler` after each list from here on, once its changes are delivered and [`Self::position`] is its revision,
    /// until the subscription drops: what was made and removed again between the watch and the list has no change.
    #[must_use = "the handler is removed when the subscription is dropped"]
    pub fn on_listed(&self, handler: impl Fn() + Send + Sync + 'static) -> Subscription {
        self.follow_lists(|handlers| &mut handlers.after_lists, handler)
    }

    fn follow_lists(
        &self,
        of: fn(&mut Handlers<P>) -> &mut Vec<(u64, ListHandler)>,
        handler: impl Fn() + Send + Sync + 'static,
    ) -> Subscription {
        let mut handlers = self.shared.handlers.lock();
        let id = handlers.next;
        handlers.next += 1;
        of(&mut handlers).push((id, Box::new(handler)));
        let shared = Arc::downgrade(&self.shared);
        Subscription::new(move || {
            if let Some(shared) = shared.upgrade() {
                of(&mut shared.handlers.lock()).retain(|(own, _)| *own != id);
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
