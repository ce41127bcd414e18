//! One store per resource that a quota counts, made when the first quota does and dropped when none does any more.

use super::reconcile::Key;
use super::views::{
    DeviceClassView, Measure, MeasuredView, OfPod, OfResourceClaim, OfService, OfVolumeClaim, QuotaView,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use machinery_client::discovery::Discovered;
use machinery_client::{
    ApiResource, Change, HeaderStore, IndexName, Informer, Informers, ListWatch, Subscription,
};
use machinery_meta::GroupResource;
use machinery_reconcile::WorkQueue;
use machinery_runtime::Runtime;
use machinery_semantics::ResourceList;
use machinery_semantics::quota::{
    DeviceClasses, Evaluator, Quota, ScopeSelector, counted_resource, is_ignored,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Resources whose objects have a measure.
const MEASURED: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("resource.k8s.io", "resourceclaims"),
];

/// See the module.
pub(super) struct Monitors {
    informers: Informers,
    quotas: Informer<QuotaView>,
    queue: WorkQueue<Key>,
    runtime: Runtime,
    state: Mutex<State>,
    /// Their changes ask discovery again.
    _of_kinds: Vec<(Arc<dyn HeaderStore>, Subscription)>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<GroupResource, Arc<Monitor>>,
    /// Resources that can be counted, as they are served.
    served: BTreeMap<GroupResource, ApiResource>,
    classes: Option<Informer<DeviceClassView>>,
}

/// The store of one resource.
pub(super) struct Monitor {
    pub(super) evaluator: Evaluator,
    source: Source,
    _subscription: Subscription,
}

enum Source {
    Measured(Box<dyn MeasuredStore>),
    /// Objects by namespace.
    Counted(Arc<dyn HeaderStore>, Arc<Mutex<BTreeMap<String, i64>>>),
}

/// A store of measures, whatever is measured.
trait MeasuredStore: Send + Sync {
    fn has_synced(&self) -> bool;
    fn used(&self, namespace: &str, scopes: &[ScopeSelector], now: Timestamp) -> ResourceList;
}

impl<M: Measure> MeasuredStore for Informer<MeasuredView<M>> {
    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }

    fn used(&self, namespace: &str, scopes: &[ScopeSelector], now: Timestamp) -> ResourceList {
        let mut used = ResourceList::default();
        for object in self.by_index(IndexName::NAMESPACE, namespace) {
            // An unknown scope matches nothing; validation refuses it.
            if object.measured.matches_all(scopes).unwrap_or(false) {
                used.add(&object.measured.usage(now));
            }
        }
        used
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The resources that a quota counts.
pub(super) fn counted(quota: &Quota, classes: &DeviceClasses) -> BTreeSet<GroupResource> {
    let mut counted = BTreeSet::new();
    for (name, _) in quota.wanted.iter() {
        let measured = MEASURED
            .iter()
            .filter(|(group, resource)| Evaluator::of(group, resource).matches_resource(name, classes));
        let numbered = counted_resource(name).filter(|(group, resource)| !is_ignored(group, resource));
        let all = measured.copied().chain(numbered);
        counted.extend(all.map(|(group, resource)| GroupResource::new(group, resource)));
    }
    counted
}

impl Monitors {
    pub(super) fn new(
        informers: Informers,
        quotas: Informer<QuotaView>,
        queue: WorkQueue<Key>,
        runtime: Runtime,
    ) -> Self {
        let sources = [
            ListWatch::of::<CustomResourceDefinition>(),
            ListWatch::of::<APIService>(),
        ];
        let of_kinds = sources.map(|source| {
            let (store, queue) = (informers.headers(source), queue.clone());
            let subscription = store.on_header_change(Box::new(move |_| queue.add(Key::Resources)));
            (store, subscription)
        });
        Self {
            informers,
            quotas,
            queue,
            runtime,
            state: Mutex::default(),
            _of_kinds: of_kinds.into(),
        }
    }

    /// Notes what is served, and reports whether that is new. Stores of what is no longer served end.
    pub(super) fn serve(&self, discovered: &Discovered) -> bool {
        if discovered.resources.is_empty() {
            return false;
        }
        let all = discovered.resources.iter();
        let countable = all.filter(|own| {
            own.preferred && own.resource.namespaced && own.has_verbs(&["create", "list", "watch", "delete"])
        });
        let mut served: BTreeMap<GroupResource, ApiResource> = countable
            .map(|own| {
                let resource = &own.resource;
                (
                    GroupResource::new(&*resource.group, &*resource.plural),
                    resource.clone(),
                )
            })
            .collect();
        let mut state = lock(&self.state);
        // What a server that is away served may come back.
        for (name, resource) in &state.served {
            if discovered.stale.contains(&resource.api_version()) {
                served.entry(name.clone()).or_insert_with(|| resource.clone());
            }
        }
        let ended: Vec<GroupResource> = state
            .running
            .keys()
            .filter(|own| state.served.get(own) != served.get(own))
            .cloned()
            .collect();
        let ended: Vec<Option<Arc<Monitor>>> = ended.iter().map(|own| state.running.remove(own)).collect();
        let is_new = state.served != served;
        state.served = served;
        drop(state);
        // Outside of the lock: a subscription ends under the store's own.
        drop(ended);
        is_new
    }

    /// Ends the stores that no quota needs.
    pub(super) fn sweep(&self) {
        let classes = self.classes();
        let mut needed = BTreeSet::new();
        self.quotas
            .for_each(|quota| needed.extend(counted(&quota.quota, &classes)));
        let mut state = lock(&self.state);
        let (kept, ended) = std::mem::take(&mut state.running)
            .into_iter()
            .partition(|(resource, _)| needed.contains(resource));
        state.running = kept;
        drop(state);
        let ended: BTreeMap<GroupResource, Arc<Monitor>> = ended;
        drop(ended);
    }

    /// The store of a resource; nothing where it is not served.
    pub(super) fn of(&self, resource: &GroupResource) -> Option<Arc<Monitor>> {
        let served = {
            let state = lock(&self.state);
            if let Some(monitor) = state.running.get(resource) {
                return Some(Arc::clone(monitor));
            }
            state.served.get(resource)?.clone()
        };
        let monitor = Arc::new(self.start(resource, served));
        lock(&self.state)
            .running
            .insert(resource.clone(), Arc::clone(&monitor));
        Some(monitor)
    }

    /// The device classes' extended resources, once a quota counts devices.
    pub(super) fn classes(&self) -> DeviceClasses {
        let Some(classes) = lock(&self.state).classes.clone() else {
            return DeviceClasses::default();
        };
        let mut all = BTreeMap::new();
        classes.for_each(|class| {
            let name = class.extended_resource.as_deref().unwrap_or_default();
            all.insert(class.name().to_owned(), name.to_owned());
        });
        DeviceClasses(all)
    }

    /// Reads device classes from now on; reports whether they are there.
    pub(super) fn needs_classes(&self) -> bool {
        let mut state = lock(&self.state);
        let classes = state
            .classes
            .get_or_insert_with(|| self.informers.of::<DeviceClass, DeviceClassView>());
        classes.has_synced()
    }

    fn start(&self, resource: &GroupResource, served: ApiResource) -> Monitor {
        let evaluator = Evaluator::of(&resource.group, &resource.resource);
        let (source, subscription) = match evaluator {
            Evaluator::Pods => self.measured::<Pod, OfPod>(&evaluator),
            Evaluator::Services => self.measured::<Service, OfService>(&evaluator),
            Evaluator::VolumeClaims => self.measured::<PersistentVolumeClaim, OfVolumeClaim>(&evaluator),
            Evaluator::ResourceClaims => self.measured::<ResourceClaim, OfResourceClaim>(&evaluator),
            Evaluator::Count(_) => self.counted(&evaluator, served),
        };
        Monitor {
            evaluator,
            source,
            _subscription: subscription,
        }
    }

    fn measured<K, M>(&self, evaluator: &Evaluator) -> (Source, Subscription)
    where
        K: k8s_openapi::Resource,
        K::Scope: 'static,
        M: Measure,
    {
        let store: Informer<MeasuredView<M>> = self.informers.of::<K, _>();
        let (freed, runtime) = (self.freed(evaluator), self.runtime.clone());
        let subscription = store.on_change(move |change: &Change<MeasuredView<M>>| {
            let frees = match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.measured.frees_by_becoming(&new.measured, runtime.now()),
                (_, None) => true,
                (None, _) => false,
            };
            if frees {
                freed(&change.key().namespace);
            }
        });
        (Source::Measured(Box::new(store)), subscription)
    }

    fn counted(&self, evaluator: &Evaluator, served: ApiResource) -> (Source, Subscription) {
        let store = self.informers.headers(ListWatch::all(served));
        let counts: Arc<Mutex<BTreeMap<String, i64>>> = Arc::default();
        let (own, freed) = (Arc::clone(&counts), self.freed(evaluator));
        let subscription = store.on_header_change(Box::new(move |change| {
            let (header, step) = match (change.old, change.new) {
                (None, Some(new)) => (new, 1),
                (Some(old), None) => (old, -1),
                _ => return,
            };
            let namespace = &header.key.namespace;
            let mut counts = lock(&own);
            let count = counts.entry(namespace.clone()).or_default();
            *count += step;
            if *count <= 0 {
                counts.remove(namespace);
            }
            drop(counts);
            if step < 0 {
                freed(namespace);
            }
        }));
        (Source::Counted(store, counts), subscription)
    }

    /// Requeues the quotas of a namespace that count a resource of which there is less.
    fn freed(&self, evaluator: &Evaluator) -> impl Fn(&str) + Send + Sync + 'static {
        let (quotas, queue, evaluator) = (self.quotas.clone(), self.queue.clone(), evaluator.clone());
        let classes = DeviceClasses::default();
        move |namespace| {
            for quota in quotas.by_index(IndexName::NAMESPACE, namespace) {
                let mut names = quota.quota.wanted.iter().map(|(name, _)| name);
                let is_claim = evaluator == Evaluator::ResourceClaims;
                if is_claim || names.any(|name| evaluator.matches_resource(name, &classes)) {
                    queue.add(Key::Quota(quota.key().clone()));
                }
            }
        }
    }
}

impl Monitor {
    pub(super) fn has_synced(&self) -> bool {
        match &self.source {
            Source::Measured(store) => store.has_synced(),
            Source::Counted(store, _) => store.has_synced(),
        }
    }

    /// Usage of a namespace's objects that are of all these scopes.
    pub(super) fn used(
        &self,
        namespace: &str,
        scopes: &[ScopeSelector],
        classes: &DeviceClasses,
        now: Timestamp,
    ) -> ResourceList {
        match &self.source {
            Source::Measured(store) if self.evaluator == Evaluator::ResourceClaims => {
                classes.with_extended(store.used(namespace, scopes, now))
            }
            Source::Measured(store) => store.used(namespace, scopes, now),
            Source::Counted(_, counts) => {
                // Objects that are only counted are of no scope.
                let counted = lock(counts).get(namespace).copied().filter(|_| scopes.is_empty());
                self.evaluator.count_of(counted.unwrap_or(0))
            }
        }
    }
}
