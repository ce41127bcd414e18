//! Watches services and endpoint slices and keeps the table current.

use crate::config::ProxyConfig;
use crate::conntrack::{Stale, stale};
use crate::elements::{Delta, Elements, Wanted};
use crate::kernel::{Kernel, KernelError};
use crate::model::{BY_SERVICE, Service, Slice};
use crate::rules::wanted;
use crate::table;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery_client::{Client, Informer, Informers, Subscription};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, TaskHandle};
use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Waits after failures: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Starts the proxy; it runs until its scope ends and leaves the rules in the kernel, so that service traffic goes
/// on while nobody watches.
pub fn start(
    config: ProxyConfig,
    client: Client,
    kernel: Arc<dyn Kernel>,
    runtime: Runtime,
) -> TaskHandle<()> {
    let inside = runtime.clone();
    let informers = Informers::new(client.with_user_agent("kube-proxy"), runtime.clone());
    runtime.spawn("proxy", run(config, informers, kernel, inside))
}

fn run(
    config: ProxyConfig,
    informers: Informers,
    kernel: Arc<dyn Kernel>,
    runtime: Runtime,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let services: Informer<Service> = informers.of::<core::Service, _>();
        let slices: Informer<Slice> = informers.of::<EndpointSlice, _>();
        services.synced().await;
        slices.synced().await;
        let dirty = Arc::new(Dirty::default());
        let _subscriptions = (dirty.follow_services(&services), dirty.follow_slices(&slices));
        let mut proxy = Proxy {
            config,
            services,
            slices,
            elements: Elements::default(),
            built: false,
        };
        let mut wait = RETRY.0;
        loop {
            let changed = dirty.take().await;
            while let Err(error) = proxy.sync(&changed, &*kernel).await {
                let cause = error.source().map(ToString::to_string);
                tracing::warn!(%error, cause, "service rules were not written; writing all of them again");
                runtime.sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
            }
            wait = RETRY.0;
        }
    })
}

/// Services that changed, themselves or in their slices; at most as many as there are.
#[derive(Debug, Default)]
struct Dirty {
    services: Mutex<BTreeSet<Arc<str>>>,
    changed: Notify,
}

impl Dirty {
    fn add(&self, service: &str) {
        self.services
            .lock()
            .expect("nothing panics while it is held")
            .insert(Arc::from(service));
        self.changed.notify_one();
    }

    fn follow_services(self: &Arc<Self>, informer: &Informer<Service>) -> Subscription {
        let dirty = Arc::clone(self);
        informer.on_change(move |change| dirty.add(&change.key().to_string()))
    }

    fn follow_slices(self: &Arc<Self>, informer: &Informer<Slice>) -> Subscription {
        let dirty = Arc::clone(self);
        informer.on_change(move |change| {
            let same = matches!((&change.old, &change.new), (Some(old), Some(new)) if old.projection == new.projection);
            if !same {
                change.sides().filter(|side| !side.service.is_empty()).for_each(|side| dirty.add(&side.service));
            }
        })
    }

    async fn take(&self) -> BTreeSet<Arc<str>> {
        loop {
            let services =
                std::mem::take(&mut *self.services.lock().expect("nothing panics while it is held"));
            if !services.is_empty() {
                return services;
            }
            self.changed.notified().await;
        }
    }
}

struct Proxy {
    config: ProxyConfig,
    services: Informer<Service>,
    slices: Informer<Slice>,
    /// What the kernel has, where `built`.
    elements: Elements,
    built: bool,
}

impl Proxy {
    /// One transaction for all these services. After a failure the next one builds the whole table again, as it is
    /// not known what the kernel has.
    async fn sync(&mut self, changed: &BTreeSet<Arc<str>>, kernel: &dyn Kernel) -> Result<(), KernelError> {
        let mut delta = Delta::default();
        let mut forget: BTreeSet<Stale> = BTreeSet::new();
        for service in changed {
            let after = self.wanted(service);
            forget.append(&mut stale(&self.elements.of(service), &after));
            self.elements.set(service, &after, &mut delta);
        }
        if self.built && delta.is_empty() {
            return Ok(());
        }
        let written = if std::mem::take(&mut self.built) {
            kernel.change(&delta).await
        } else {
            kernel
                .apply(table::base(self.config.cluster_cidr) + &table::additions(self.elements.all()))
                .await
        };
        written?;
        self.built = true;
        tracing::debug!(
            services = changed.len(),
            added = delta.add.len(),
            deleted = delta.delete.len(),
            "rules written"
        );
        kernel.forget(&forget).await;
        Ok(())
    }

    fn wanted(&self, service: &str) -> Wanted {
        let Some((namespace, name)) = service.split_once('/') else {
            return Wanted::new();
        };
        let Some(object) = self.services.get(&ObjectKey::new(namespace, name)) else {
            return Wanted::new();
        };
        if object
            .cluster_ip
            .is_some_and(|address| self.config.local_addresses.contains(&address))
        {
            return Wanted::new();
        }
        let slices = self.slices.by_index(BY_SERVICE, service);
        wanted(
            &object.projection,
            slices.iter().map(|slice| &slice.projection),
            &self.config.node_name,
        )
    }
}
