//! The informers of one identity, each started once.

use super::shared::Shared;
use super::{Informer, Subscription};
use crate::client::Client;
use crate::header_store::HeaderStore;
use crate::projection::Projection;
use crate::resource::ListWatch;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

/// Informer that runs already, for the next reader to share.
struct Known {
    projection: TypeId,
    shared: Weak<dyn Any + Send + Sync>,
    as_headers: Box<dyn Fn() -> Option<Arc<dyn HeaderStore>> + Send + Sync>,
}

impl Known {
    fn runs(&self) -> bool {
        self.shared.strong_count() > 0
    }
}

/// The informers of one identity.
#[derive(Clone)]
pub struct Informers {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    runtime: Runtime,
    /// Sources of informers that run.
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

    /// The shared informer of a source, started at the first request for it.
    pub fn informer<P: Projection>(&self, source: ListWatch) -> Informer<P> {
        let mut known = self.inner.known.lock();
        let list = known.entry(source.clone()).or_default();
        list.retain(Known::runs);
        let found = list.iter().find(|known| known.projection == TypeId::of::<P>());
        let shared = found.and_then(|known| known.shared.upgrade()?.downcast::<Shared<P>>().ok());
        if let Some(shared) = shared {
            return Informer { shared };
        }
        let informer = Informer::<P>::start(source.clone(), &self.inner.client, &self.inner.runtime);
        *informer.shared.registration.lock() = Some(self.registration(source));
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

    /// Takes the informers of a source that have ended off the list when it is dropped.
    fn registration(&self, source: ListWatch) -> Subscription {
        let informers = Arc::downgrade(&self.inner);
        Subscription::new(move || {
            let Some(inner) = informers.upgrade() else {
                return;
            };
            let mut known = inner.known.lock();
            // Another informer of the source may run, or have begun meanwhile.
            if let Some(list) = known.get_mut(&source) {
                list.retain(Known::runs);
                if list.is_empty() {
                    known.remove(&source);
                }
            }
        })
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

    /// Waits until every informer requested so far has its first list.
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
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;
    use machinery_runtime::Simulation;

    type Frame = Result<http_body::Frame<bytes::Bytes>, std::io::Error>;

    /// A reader that requests a source for each name, as the kubelet does, leaves nothing behind.
    #[test]
    fn informers_forget_a_source_with_its_last_informer() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let server = tower::service_fn(|_: http::Request<Body>| async {
                let silent = StreamBody::new(futures::stream::pending::<Frame>());
                Ok::<_, std::convert::Infallible>(http::Response::new(silent))
            });
            let informers = Informers::new(Client::in_process(server, runtime.clone()), runtime);
            let sources = |informers: &Informers| informers.inner.known.lock().len();
            let named = |name: &str| {
                let selector = format!("metadata.name={name}");
                ListWatch::of::<Secret>().fields(&selector)
            };
            let first = informers.informer::<()>(named("a"));
            let again = informers.informer::<()>(named("a"));
            let second = informers.informer::<()>(named("b"));
            drop(first);
            assert_eq!(sources(&informers), 2, "one of the handles is there");
            drop(again);
            assert_eq!(sources(&informers), 1);
            // The other informers may be gone first.
            drop(informers);
            drop(second);
        });
    }
}
