//! One watch of services and one of endpoint slices, for all readers of a process.

use crate::endpoint_slice::Slice;
use crate::service::Service;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{Client, Informer, Informers};
use machinery_runtime::{Runtime, Watched};
use std::future::Future;
use std::sync::Arc;

/// Informers of one run of the watches.
#[derive(Debug, Clone)]
pub struct Followed {
    /// Every service.
    pub services: Informer<Service>,
    /// Every endpoint slice.
    pub slices: Informer<Slice>,
    /// Number of the run: a panic of an informer ends one, and the next begins with empty stores.
    run: u64,
}

/// Services and endpoint slices of the cluster, for components of one process. They are a component of their own, so that
/// none of their readers ends another's.
#[derive(Debug, Clone)]
pub struct ServiceViews {
    present: Arc<Watched<Option<Followed>>>,
}

impl ServiceViews {
    /// Name of the component.
    pub const COMPONENT: &str = "service watches";

    /// Starts both watches with this client's identity; they run until the scope of `runtime` ends.
    pub fn start(client: &Client, runtime: &Runtime) -> Self {
        let present = Arc::new(Watched::new(None));
        let views = Self {
            present: Arc::clone(&present),
        };
        let (client, mut run) = (client.clone(), 0);
        let begin = move |inside: Runtime| {
            run += 1;
            let begun = Begun::new(&present, &client, inside, run);
            async move {
                let _until_dropped = begun;
                std::future::pending().await
            }
        };
        runtime.supervise_scope(Self::COMPONENT, begin).detach();
        views
    }

    /// Polls `follow`, called with the informers of the present run, until that run is over: what was read of it is not
    /// kept current any longer, and the reader begins again. `None` says that the run was over first.
    pub async fn during_a_run<F: Future>(&self, follow: impl FnOnce(Followed) -> F) -> Option<F::Output> {
        let followed = self.present.wait_for(Option::is_some).await?;
        let run = followed.run;
        let is_over = move |present: &Option<Followed>| present.as_ref().is_none_or(|now| now.run != run);
        tokio::select! { biased;
            _ = self.present.wait_for(is_over) => None,
            done = follow(followed) => Some(done),
        }
    }
}

/// A run that readers can find until this is dropped.
struct Begun(Arc<Watched<Option<Followed>>>);

impl Begun {
    fn new(present: &Arc<Watched<Option<Followed>>>, client: &Client, inside: Runtime, run: u64) -> Self {
        let informers = Informers::new(client.clone(), inside);
        present.replace(Some(Followed {
            services: informers.of::<core::Service, _>(),
            slices: informers.of::<EndpointSlice, _>(),
            run,
        }));
        Self(Arc::clone(present))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.replace(None);
    }
}
