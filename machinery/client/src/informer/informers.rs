//! The informers of one identity, each started once.

use super::Informer;
use super::shared::Shared;
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
