//! One header store per resource that can be collected; discovery says which.

use super::dispatch::Dispatcher;
use super::graph::Graph;
use super::keys::Key;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use machinery_client::discovery::Discovered;
use machinery_client::{ApiResource, HeaderStore, Informers, ListWatch, Subscription};
use machinery_meta::OwnerRef;
use machinery_reconcile::WorkQueue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Resources that are never collected: they come and go by themselves, in numbers.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// The stores and what is known of kinds.
pub(super) struct Monitors {
    informers: Informers,
    graph: Arc<Graph>,
    dispatcher: Arc<Dispatcher>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<ApiResource, Monitor>,
    /// Stores whose changes ask discovery again.
    _of_kinds: Vec<Monitor>,
    /// Every served resource by `apiVersion` and kind.
    kinds: BTreeMap<(String, String), Arc<ApiResource>>,
}

/// Dropping it ends its watch, unless another shares the store.
struct Monitor {
    store: Arc<dyn HeaderStore>,
    _subscriptions: Vec<Subscription>,
}

impl Monitors {
    pub(super) fn new(informers: Informers, graph: Arc<Graph>, dispatcher: Arc<Dispatcher>) -> Self {
        Self {
            informers,
            graph,
            dispatcher,
            state: Mutex::default(),
        }
    }

    /// Changes of CRDs and APIServices ask discovery again. Nothing waits for these two stores: one that never lists
    /// would end all collection.
    pub(super) fn watch_kinds(&self, queue: &WorkQueue<Key>) {
        let sources = [
            ListWatch::of::<CustomResourceDefinition>(),
            ListWatch::of::<APIService>(),
        ];
        let watched = sources.map(|source| {
            let (store, queue) = (self.informers.headers(source), queue.clone());
            let subscription = store.on_header_change(Box::new(move |_| queue.add(Key::Discovery)));
            Monitor {
                store,
                _subscriptions: vec![subscription],
            }
        });
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            ._of_kinds = watched.into();
    }

    /// Starts and ends stores so that they are those of what is served.
    pub(super) fn serve(&self, discovered: &Discovered) {
        if discovered.resources.is_empty() {
            // No server serves nothing; upstream waits for the next answer too.
            return;
        }
        let wanted: BTreeSet<ApiResource> = discovered
            .resources
            .iter()
            .filter(|own| own.preferred && own.has_verbs(&["list", "watch", "delete"]))
            .map(|own| own.resource.clone())
            .filter(|own| !IGNORED.contains(&(&*own.group, &*own.plural)))
            .collect();
        let kinds = discovered.resources.iter().map(|own| {
            (
                (own.resource.api_version(), own.resource.kind.to_string()),
                Arc::new(own.resource.clone()),
            )
        });
        let (missing, ended) = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.kinds = kinds.collect();
            let missing: Vec<_> = wanted
                .iter()
                .filter(|own| !state.running.contains_key(own))
                .cloned()
                .collect();
            // What a server that is away served may come back; its stores wait.
            let away = |own: &ApiResource| discovered.stale.contains(&own.api_version());
            let ended: Vec<_> = state
                .running
                .keys()
                .filter(|own| !wanted.contains(own) && !away(own))
                .cloned()
                .collect();
            (missing, ended)
        };
        for resource in ended {
            let monitor = self
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .running
                .remove(&resource);
            drop(monitor);
            self.dispatcher.look_at(self.graph.resource_gone(&resource));
        }
        for resource in missing {
            let monitor = self.monitor(&resource);
            self.state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .running
                .insert(resource, monitor);
        }
    }

    fn monitor(&self, resource: &ApiResource) -> Monitor {
        let store = self.informers.headers(ListWatch::all(resource.clone()));
        let (graph, dispatcher) = (self.graph.clone(), self.dispatcher.clone());
        let resource = Arc::new(resource.clone());
        let (own, listed) = (dispatcher.clone(), resource.clone());
        let lists = store.on_list(Box::new(move || own.absent.forget(&listed)));
        let changes = store.on_header_change(Box::new(move |change| {
            dispatcher.carry_out(graph.changed(&resource, change));
        }));
        Monitor {
            store,
            _subscriptions: vec![lists, changes],
        }
    }

    /// Reports whether every store has its first list.
    pub(super) fn have_synced(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        !state.running.is_empty() && state.running.values().all(|monitor| monitor.store.has_synced())
    }

    /// The resource that an owner reference means.
    pub(super) fn resource_of(&self, owner: &OwnerRef) -> Option<Arc<ApiResource>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .kinds
            .get(&(owner.api_version.to_string(), owner.kind.to_string()))
            .cloned()
    }
}
