//! Applies changes of services and slices: one service at a time, namespaces in turn.
//!
//! A change puts its service into a fair queue. The names of a service are made once for all the changes that came meanwhile, and a
//! namespace whose services take long has a cooldown between them, so that new names of others wait for one service at most.

use crate::keeper::Keeper;
use crate::zone::Zone;
use machinery_client::{Informer, Subscription, Turn, TurnQueue};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use machinery_views::{BY_SERVICE, Service, Slice};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

const HELD: &str = "nothing panics while it is held";
/// Records up to which a service is computed on the task's own thread (some milliseconds); more go to a thread for blocking work.
const LIGHT: usize = 1_024;

/// Services and slices, and the keeper that writes their names.
pub(crate) struct Following {
    keeper: Mutex<Keeper>,
    services: Informer<Service>,
    slices: Informer<Slice>,
    turns: TurnQueue,
    runtime: Runtime,
}

impl Following {
    pub(crate) fn new(
        keeper: Keeper,
        services: Informer<Service>,
        slices: Informer<Slice>,
        runtime: Runtime,
    ) -> Self {
        Self {
            keeper: Mutex::new(keeper),
            services,
            slices,
            turns: TurnQueue::new(runtime.clone()),
            runtime,
        }
    }

    /// Queues all services, and then each with every change of it or of its slices.
    pub(crate) fn follow(self: &Arc<Self>) -> (Subscription, Subscription) {
        let (of_services, of_slices) = (Arc::clone(self), Arc::clone(self));
        let services = self.services.on_change(move |change| {
            of_services.turns.add(&change.key().to_string());
        });
        let slices = self.slices.on_change(move |change| {
            // Many slice updates change only what the projection leaves out (annotations, a trigger time).
            let same = matches!((&change.old, &change.new), (Some(old), Some(new)) if old.projection == new.projection);
            if !same {
                // Both sides: a slice whose label moved takes names from one service and gives them to another.
                let sides = change.sides().filter(|side| !side.service.is_empty());
                sides.for_each(|side| of_slices.turns.add(&side.service));
            }
        });
        (services, slices)
    }

    /// Computes the names of all services that are queued now, cooldowns ignored, and removes those of services of the last
    /// run that are deleted since.
    pub(crate) async fn catch_up(self: &Arc<Self>, zone: &RwLock<Zone>) {
        for service in zone.read().expect(HELD).services() {
            self.turns.add(&service.to_string());
        }
        let mut left = self.turns.objects();
        while !left.is_empty() {
            let Some(turn) = self.turns.take_any() else {
                break;
            };
            left.remove(&turn.object);
            self.renew(turn).await;
            // A long queue must not keep the questions on the same runtime waiting.
            tokio::task::yield_now().await;
        }
    }

    /// Processes the queue for as long as it is polled.
    pub(crate) async fn keep_current(self: &Arc<Self>) {
        loop {
            let turn = self.turns.next().await;
            self.renew(turn).await;
            tokio::task::yield_now().await;
        }
    }

    /// Computes the names of a service. One service after the other, so that the newest state read is also the last written.
    async fn renew(self: &Arc<Self>, turn: Turn) {
        let Some((namespace, name)) = turn.object.split_once('/') else {
            return;
        };
        let key = ObjectKey::new(namespace, name);
        // Queued only because other services had released records, which still others may have taken since.
        if !turn.changed && !self.keeper.lock().expect(HELD).is_due(&key) {
            return;
        }
        let is_light = self.records(&turn.object) <= LIGHT;
        let took = if is_light {
            self.set(&key)
        } else {
            let own = Arc::clone(self);
            // Not among the heavy work, where others' names would wait for what else the node does.
            let set = self.runtime.blocking(move || own.set(&key)).await;
            set.unwrap_or_default()
        };
        // What this service released may be enough for others of its namespace that were cut.
        let due = self.keeper.lock().expect(HELD).due();
        due.iter()
            .for_each(|other| self.turns.add_due(&other.to_string()));
        self.turns.worked(&turn.object, took);
    }

    /// Number of records that a service has at most.
    fn records(&self, service: &str) -> usize {
        let slices = self.slices.by_index(BY_SERVICE, service);
        let of = |slice: &Slice| slice.endpoints.len().saturating_mul(3 + 2 * slice.ports.len());
        slices.iter().map(|slice| of(slice)).sum()
    }

    /// The time that it took.
    fn set(&self, key: &ObjectKey) -> Duration {
        let mut keeper = self.keeper.lock().expect(HELD);
        let begun = self.runtime.monotonic();
        let service = self.services.get(key);
        let slices = self.slices.by_index(BY_SERVICE, &key.to_string());
        let service = service.as_ref().map(|service| &service.projection);
        keeper.set(key, service, slices.iter().map(|one| &one.projection));
        self.runtime.monotonic().saturating_sub(begun)
    }
}
