//! The store that the readers of one source share, and what a change of it does: to the store first, then to the handlers.

use super::{Change, Subscription};
use crate::header_store::Origin;
use crate::object::{Object, RawObject, Slices};
use crate::projection::Projection;
use crate::reflector::Sink;
use crate::resource::ListWatch;
use crate::store::Store;
use futures::FutureExt;
use machinery_meta::{ObjectHeader, ObjectKey, Revision};
use machinery_runtime::{Runtime, Scope, Watched};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) type Handler<P> = Arc<dyn Fn(&Change<P>) + Send + Sync>;
pub(super) type ListHandler = Box<dyn Fn() + Send + Sync>;

pub(super) struct Shared<P: Projection> {
    pub(super) source: ListWatch,
    runtime: Runtime,
    shares_memory: bool,
    pub(super) store: RwLock<Store<P>>,
    /// Held while a change is applied and delivered, so that a late subscriber misses none and sees none twice.
    pub(super) handlers: Mutex<Handlers<P>>,
    pub(super) synced: Watched<bool>,
    /// The newest revision up to which everything is in the store.
    pub(super) position: AtomicU64,
    /// A list is in the store whose revision is not the position yet.
    listed: AtomicBool,
    pub(super) origin: Arc<Origin>,
    /// The reflector's scope; the reflector holds this struct weakly and ends with it.
    pub(super) reflector: Mutex<Option<Scope>>,
    /// Its place among the informers that run; released when this struct is dropped.
    pub(super) registration: Mutex<Option<Subscription>>,
}

pub(super) struct Handlers<P> {
    pub(super) next: u64,
    pub(super) list: Vec<(u64, Handler<P>)>,
    pub(super) before_lists: Vec<(u64, ListHandler)>,
    pub(super) after_lists: Vec<(u64, ListHandler)>,
}

impl<P: Projection> Shared<P> {
    pub(super) fn new(source: ListWatch, runtime: Runtime, shares_memory: bool) -> Self {
        Self {
            source,
            runtime,
            shares_memory,
            store: RwLock::new(Store::new()),
            handlers: Mutex::new(Handlers {
                next: 0,
                list: Vec::new(),
                before_lists: Vec::new(),
                after_lists: Vec::new(),
            }),
            synced: Watched::new(false),
            position: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            origin: Arc::default(),
            reflector: Mutex::new(None),
            registration: Mutex::new(None),
        }
    }

    fn parse(&self, arrived: RawObject) -> Option<Arc<Object<P>>> {
        let RawObject {
            header,
            revision,
            bytes,
            room,
            is_partial,
        } = arrived;
        if is_partial {
            return None;
        }
        let project = || self.project(&header, &bytes.joined());
        let projected = self.catch("projection", &header.key, project)?;
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
            header,
            revision,
            projection,
            bytes: kept,
            _room: room,
        }))
    }

    fn project(&self, header: &ObjectHeader, json: &[u8]) -> Result<P, serde_json::Error> {
        let Some(project_after) = P::PROJECT_AFTER else {
            return P::project(header, json);
        };
        let former = self.store.read().get(&header.key).cloned();
        match former {
            Some(former) => project_after(&former, header, json),
            None => P::project(header, json),
        }
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
            // A list repeats most of what is there: an equal revision is no change, and handlers would enqueue
            // every key.
            .is_some_and(|old| old.revision == object.revision && old.uid() == object.uid())
        {
            return;
        }
        let old = store.put(object.clone());
        drop(store);
        // Released before handlers run: they read the store.
        // An object recreated under the same name is a removal and an addition, as upstream's informers deliver it.
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

    fn remove(&self, key: &ObjectKey) {
        let handlers = self.handlers.lock();
        self.take(&handlers, key);
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
            // What it was before is no longer true, and a reader that waits for what it is now would wait for ever.
            None => self.remove(&key),
        }
    }

    fn delete(&self, object: RawObject) {
        self.remove(&object.header.key);
    }

    fn replace(&self, objects: Vec<RawObject>) {
        let objects: Vec<_> = objects
            .into_iter()
            .filter_map(|object| self.parse(object))
            .collect();
        let present: BTreeSet<&ObjectKey> = objects.iter().map(|object| object.key()).collect();
        let handlers = self.handlers.lock();
        handlers.before_lists.iter().for_each(|(_, handler)| handler());
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
            // Removals first: a handler that counts (a quota, a selector) never sees the old and the new set
            // together.
            self.take(&handlers, key);
        }
        for object in objects {
            self.put(&handlers, object);
        }
        // Handlers of `on_listed` run in `reached`: the position is the list's only then.
        self.listed.store(true, Ordering::Relaxed);
        self.synced.replace(true);
    }

    fn reached(&self, revision: Revision) {
        self.position.store(revision.0, Ordering::Release);
        if self.listed.swap(false, Ordering::Relaxed) {
            let handlers = self.handlers.lock();
            handlers.after_lists.iter().for_each(|(_, handler)| handler());
        }
    }

    fn reads_objects(&self) -> bool {
        P::READS_OBJECT || P::KEEP_BYTES
    }

    fn answered(&self, of_extension: bool) {
        self.origin.of_extension.store(of_extension, Ordering::Release);
    }

    fn forget(&self) {
        self.origin.forgets.store(true, Ordering::Release);
        self.replace(Vec::new());
        self.origin.forgets.store(false, Ordering::Release);
        self.synced.replace(false);
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
            header: Arc::new(header),
            revision,
            bytes: Slices::default(),
            room: None,
            is_partial: false,
        }
    }

    /// Number of versions since the object was not there.
    struct Versions(u32);

    impl Projection for Versions {
        const PROJECT_AFTER: Option<crate::ProjectAfter<Self>> = Some(|former, _, _| Ok(Self(former.0 + 1)));

        fn project(_: &ObjectHeader, _: &[u8]) -> Result<Self, serde_json::Error> {
            Ok(Self(1))
        }
    }

    #[test]
    fn informer_projects_after_the_version_in_its_store() {
        let simulation = Simulation::new(1);
        let shared = Shared::<Versions>::new(ListWatch::of::<Pod>(), simulation.runtime(), false);
        let versions = |name: &str| {
            let store = shared.store.read();
            store.get(&ObjectKey::new("n", name)).map(|own| own.projection.0)
        };
        let version = |revision: u64| RawObject {
            revision: Revision(revision),
            ..raw("a")
        };
        shared.replace(vec![version(1), raw("b")]);
        shared.upsert(version(2));
        assert_eq!((versions("a"), versions("b")), (Some(2), Some(1)));
        shared.replace(vec![version(3)]);
        assert_eq!((versions("a"), versions("b")), (Some(3), None));
        shared.delete(version(4));
        shared.upsert(version(5));
        assert_eq!(versions("a"), Some(1));
    }

    #[test]
    fn informer_leaves_out_what_a_reader_cannot_bear_and_goes_on() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let told = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&told);
        let fragile: Handler<Fragile> = Arc::new(|change| assert_ne!(&*change.key().name, "bad", "as told"));
        let other: Handler<Fragile> = Arc::new(move |change| own.lock().push(change.key().name.to_string()));
        let shared = Shared::new(ListWatch::of::<Pod>(), runtime, false);
        shared.handlers.lock().list = vec![(0, fragile), (1, other)];
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
