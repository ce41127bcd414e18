//! Watches services and endpoint slices and keeps the table current.

use crate::affinity::AffinityEntry;
use crate::choice::ready_here;
use crate::config::ProxyConfig;
use crate::elements::{Delta, Key};
use crate::events::ServiceEvents;
use crate::health::HealthPorts;
use crate::kernel::{Kernel, KernelError};
use crate::plans::{Plans, Work};
use crate::rules::NodeFacts;
use crate::shares::RuleShares;
use crate::table;
use futures::future::BoxFuture;
use machinery_client::{Client, Informer, Subscription, Turn, TurnQueue};
use machinery_meta::ObjectKey;
use machinery_runtime::{Runtime, TaskHandle};
use machinery_views::{BY_SERVICE, Followed, Service, ServiceViews, Slice};
use node_sys::nftables::Table;
use node_sys::nftables_guard::TableGuard;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

const GUARDED: &[Table] = &[Table::ip(table::TABLE)];
/// Waits after failures: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Pause between two repairs.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);

/// Starts the proxy; it runs until its scope ends and leaves the rules in the kernel, so that service traffic goes
/// on while the agent is down. `client` writes events, and that is all.
pub fn start(
    config: ProxyConfig,
    client: Client,
    views: ServiceViews,
    kernel: Arc<dyn Kernel>,
    runtime: Runtime,
) -> TaskHandle<()> {
    let client = client.with_user_agent("kube-proxy");
    runtime.supervise_scope("proxy", move |inside| {
        let events = ServiceEvents::new(&client, &config.node_name);
        let health = HealthPorts::new(
            inside.clone(),
            config.node_port_addresses.clone(),
            events.failed(),
        );
        let plans = Plans::new(RuleShares::new(inside.clone(), events.short()));
        let (config, kernel, views) = (config.clone(), Arc::clone(&kernel), views.clone());
        async move {
            let running = |followed| run(config, followed, kernel, (health, plans), inside);
            let over = views.during_a_run(running).await;
            over.ok_or_else(|| "the watches of services ended".to_owned())
        }
    })
}

fn run(
    config: ProxyConfig,
    Followed { services, slices, .. }: Followed,
    kernel: Arc<dyn Kernel>,
    (health, plans): (HealthPorts, Plans),
    runtime: Runtime,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        services.synced().await;
        slices.synced().await;
        let changed = Arc::new(TurnQueue::new(runtime.clone()));
        let _subscriptions = (
            follow_services(&changed, &services),
            follow_slices(&changed, &slices),
        );
        let mut proxy = Proxy {
            config,
            services,
            slices,
            changed: Arc::clone(&changed),
            plans,
            health,
            guard: TableGuard::open(GUARDED, runtime.clone()),
            built: false,
            runtime: runtime.clone(),
        };
        let mut wait = RETRY.0;
        let mut next_repair = Duration::ZERO;
        loop {
            let first = tokio::select! { biased;
                first = changed.next() => Some(first),
                () = proxy.guard.disturbed() => {
                    proxy.built = false;
                    // At once, and not in a fight that never ends.
                    runtime.sleep_until(next_repair).await;
                    next_repair = runtime.monotonic() + REPAIR_PAUSE;
                    None
                }
            };
            let mut synced = proxy.sync(first, &*kernel).await;
            while let Err(error) = synced {
                let cause = error.source().map(ToString::to_string);
                tracing::warn!(%error, cause, "service rules were not written; writing all of them again");
                proxy.health.set_healthy(false);
                runtime.sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
                // The next try writes the whole table, with what has changed meanwhile.
                synced = proxy.sync(None, &*kernel).await;
            }
            proxy.health.set_healthy(true);
            wait = RETRY.0;
        }
    })
}

/// Puts services in line: those that are there, and each that changes.
fn follow_services(changed: &Arc<TurnQueue>, informer: &Informer<Service>) -> Subscription {
    let changed = Arc::clone(changed);
    informer.on_change(move |change| changed.add(&change.key().to_string()))
}

/// Puts services in line whose slices change.
fn follow_slices(changed: &Arc<TurnQueue>, informer: &Informer<Slice>) -> Subscription {
    let changed = Arc::clone(changed);
    informer.on_change(move |change| {
        let same =
            matches!((&change.old, &change.new), (Some(old), Some(new)) if old.projection == new.projection);
        if !same {
            let sides = change.sides().filter(|side| side.is_proxied);
            sides.for_each(|side| changed.add(&side.service));
        }
    })
}

struct Proxy {
    config: ProxyConfig,
    services: Informer<Service>,
    slices: Informer<Slice>,
    changed: Arc<TurnQueue>,
    /// Elements in the kernel, if `built`.
    plans: Plans,
    health: HealthPorts,
    guard: TableGuard,
    built: bool,
    runtime: Runtime,
}

/// Services of a transaction: their planned elements, and the time that planning took.
type Planned = Vec<(Arc<str>, usize, Duration)>;

/// Elements that are planned for one transaction, unless the whole table is written: others wait for no more.
const MAX_OF_TRANSACTION: usize = 16_384;

/// Elements that `nft` adds with the table, as one transaction; it takes 2.4 KB for each. More of them are added over netlink
/// once the table is there.
const MAX_WITH_TABLE: usize = 65_536;

impl Proxy {
    /// One transaction for services in line, namespaces in turn, from this one on. After a failure the next one builds the
    /// whole table again, as it is not known what the kernel has.
    async fn sync(&mut self, first: Option<Turn>, kernel: &dyn Kernel) -> Result<(), KernelError> {
        let mut work = Work::default();
        let planned = self.plan(first, &mut work).await;
        let changed = work.delta.add.len() + work.delta.delete.len();
        let begun = self.runtime.monotonic();
        let written = self.write(work, kernel).await;
        let took = self.runtime.monotonic().saturating_sub(begun);
        tracing::debug!(services = planned.len(), changed, "rules written");
        let all: usize = planned.iter().map(|(_, elements, _)| elements).sum();
        for (service, elements, planning) in planned {
            // Each namespace rests for its part.
            let part = took.mul_f64(ratio(elements, all));
            self.changed.worked(&service, planning + part);
        }
        written
    }

    /// Plans as many services as one transaction has, or all where the table is written as a whole.
    async fn plan(&mut self, first: Option<Turn>, work: &mut Work) -> Planned {
        let (mut planned, mut elements) = (Planned::new(), 0);
        let mut next = first;
        loop {
            let Some(turn) = next.take().or_else(|| self.next_turn(elements)) else {
                return planned;
            };
            if !turn.changed && !self.plans.is_due(&turn.object) {
                continue;
            }
            let begun = self.runtime.monotonic();
            let own = self.sync_service(&turn.object, work);
            elements += own;
            let took = self.runtime.monotonic().saturating_sub(begun);
            planned.push((turn.object, own, took));
            let due = self.plans.due();
            due.iter().for_each(|other| self.changed.add_due(other));
            // Other tasks of this thread have their turn: there may be very many services.
            tokio::task::yield_now().await;
        }
    }

    fn next_turn(&self, elements: usize) -> Option<Turn> {
        if !self.built {
            return self.changed.take_any();
        }
        let has_room = elements < MAX_OF_TRANSACTION;
        has_room.then(|| self.changed.take()).flatten()
    }

    async fn write(&mut self, mut work: Work, kernel: &dyn Kernel) -> Result<(), KernelError> {
        if !self.built {
            self.rebuild(kernel).await?;
            // The flows that were looked at are unknown: all of them.
            self.plans
                .flows()
                .for_each(|flows| work.flows.append(flows.clone()));
        } else if !work.delta.is_empty() {
            self.change(&work.delta, kernel).await?;
        }
        if !work.flows.is_empty() {
            match kernel.delete_conntrack_entries(work.flows).await {
                Ok(0) => {}
                Ok(flows) => tracing::debug!(flows, "conntrack entries of removed endpoints deleted"),
                Err(error) => {
                    tracing::warn!(%error, "deleting conntrack entries of removed endpoints failed")
                }
            }
        }
        Ok(())
    }

    /// The whole table, with the clients that stay where they are.
    async fn rebuild(&mut self, kernel: &dyn Kernel) -> Result<(), KernelError> {
        let notes: Vec<AffinityEntry> = kernel.notes().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "reading session affinity failed");
            Vec::new()
        });
        let elements = self.plans.elements();
        let notes: Vec<AffinityEntry> = notes.into_iter().filter(|note| note.holds(elements)).collect();
        let base = table::base(self.config.cluster_cidr, &self.config.node_port_addresses);
        if elements.len() <= MAX_WITH_TABLE {
            let script = base + &table::additions(elements.all()) + &table::notes(&notes);
            kernel.apply(script).await?;
            return self.settle();
        }
        kernel.apply(base + &table::notes(&notes)).await?;
        let add = elements.all().collect();
        let delete = BTreeMap::new();
        kernel.change(&Delta { delete, add }).await?;
        self.settle()
    }

    async fn change(&mut self, delta: &Delta, kernel: &dyn Kernel) -> Result<(), KernelError> {
        self.built = false;
        kernel.change(delta).await?;
        // The kernel notes no endpoint that is not in the table any more; what it noted before goes now.
        if delta.delete.keys().any(|key| matches!(key, Key::Sticky(..))) {
            let mut notes = kernel.notes().await?;
            notes.retain(|note| !note.holds(self.plans.elements()));
            kernel.delete_affinity_entries(notes).await?;
        }
        self.settle()
    }

    /// Everything is written. News of our own change are none.
    fn settle(&mut self) -> Result<(), KernelError> {
        self.built = self.guard.settle().map_err(KernelError::Watch)?;
        if self.built {
            Ok(())
        } else {
            Err(KernelError::Removed)
        }
    }

    /// Returns the number of elements that it has.
    fn sync_service(&mut self, service: &Arc<str>, work: &mut Work) -> usize {
        let key = service
            .split_once('/')
            .map(|(namespace, name)| ObjectKey::new(namespace, name));
        let object = key.and_then(|key| self.services.get(&key));
        let own = |address| self.config.local_addresses.contains(&address);
        let object = object.filter(|object| !object.cluster_ip.is_some_and(own));
        let slices = self.slices.by_index(BY_SERVICE, service);
        let slices = slices
            .iter()
            .map(|slice| &slice.projection)
            .filter(|slice| slice.is_proxied);
        let here = NodeFacts {
            node: &self.config.node_name,
            node_ip: self.config.node_ip,
        };
        let none = Service::default();
        let projection = object.as_ref().map_or(&none, |object| &object.projection);
        let projection = &without_own_addresses(projection, &self.config);
        let elements = self.plans.set(service, projection, slices.clone(), here, work);
        if !self.built {
            // All of it is rewritten.
            work.delta = Delta::default();
        }
        let ready = ready_here(slices, &self.config.node_name);
        self.health.set(service, projection.health_check_port, ready);
        elements
    }
}

fn ratio(part: usize, all: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(all.max(1))
}

/// A service as it is, but for external addresses that are the cluster's: authors of services would take the
/// traffic of others, of the API server and of the node with them (CVE-2020-8554).
pub(crate) fn without_own_addresses<'a>(service: &'a Service, config: &ProxyConfig) -> Cow<'a, Service> {
    if !service.external_ips.iter().any(|address| config.is_own(*address)) {
        return Cow::Borrowed(service);
    }
    let mut service = service.clone();
    service.external_ips.retain(|address| !config.is_own(*address));
    Cow::Owned(service)
}
