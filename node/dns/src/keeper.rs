//! Keeps the names of services current, those of each namespace within its share of the zone.

use crate::records::brought;
use crate::zone::{Change, Zone};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Family, Reading};
use machinery_semantics::shares::{NamespaceShares, Part, ShareBounds};
use machinery_views::{Service, Slice};
use std::fmt;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// Records of the zone: some 130 bytes each, names included.
const BOUNDS: ShareBounds = ShareBounds {
    of_all: 1 << 20,
    of_namespace: 1 << 18,
    assured: 2_048,
};

const SHORT: Family = Family::new(
    "knarr_dns_services_short_of_records",
    "Services that have fewer DNS records than they need on this node, as their namespace has its share.",
    &["namespace"],
);
const RECORDS: Family = Family::new("knarr_dns_records", "DNS records of services on this node.", &[]);

/// Log lines in a window of time; the metric has all services.
const SAID: (u32, Duration) = (20, Duration::from_secs(600));

const HELD: &str = "nothing panics while it is held";

/// Writer of the names of services in the zone.
pub(crate) struct Keeper {
    zone: Arc<RwLock<Zone>>,
    domain: Arc<str>,
    shares: Arc<Mutex<NamespaceShares>>,
    said: u32,
    since: Duration,
    runtime: Runtime,
    _readings: [Reading; 2],
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("shares", &self.shares)
            .finish_non_exhaustive()
    }
}

impl Keeper {
    /// A keeper of a zone, which may have names already.
    pub(crate) fn new(zone: Arc<RwLock<Zone>>, runtime: Runtime) -> Self {
        let mut shares = NamespaceShares::new(BOUNDS);
        let domain = {
            let zone = zone.read().expect(HELD);
            // Services of the saved zone count against their namespaces from the start.
            for (key, brought) in zone.brought_by_service() {
                let (has, needs) = (brought.len(), brought.len());
                shares.set(&key.to_string(), 0, Part { has, needs });
            }
            zone.domain().into()
        };
        let shares = Arc::new(Mutex::new(shares));
        let (of_short, of_records) = (Arc::clone(&shares), Arc::clone(&shares));
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let readings = [
            runtime.metrics().read(&SHORT, move |samples| {
                for (namespace, count) in of_short.lock().expect(HELD).short_by_namespace() {
                    samples.add(&[namespace], number(count));
                }
            }),
            runtime.metrics().read(&RECORDS, move |samples| {
                samples.add(&[], number(of_records.lock().expect(HELD).all()));
            }),
        ];
        Self {
            zone,
            domain,
            shares,
            said: 0,
            since: runtime.monotonic(),
            runtime,
            _readings: readings,
        }
    }

    /// Sets a service and its slices; `None` if it is deleted. The zone is locked only while the difference is applied.
    pub(crate) fn set<'a>(
        &mut self,
        key: &ObjectKey,
        service: Option<&'a Service>,
        slices: impl Iterator<Item = &'a Slice>,
    ) {
        let object = key.to_string();
        // Cloned (an `Arc`) and released: records are computed without the lock, as questions need it.
        let before = self.zone.read().expect(HELD).brought_by(key).cloned();
        let before = before.unwrap_or_default();
        let room = self.shares.lock().expect(HELD).room(&object, before.len());
        let brought = service.map(|service| brought(&self.domain, key, service, slices, room));
        let brought = brought.unwrap_or_default();
        let part = Part {
            has: brought.records.len(),
            needs: brought.needs,
        };
        let change = Change::between(&before, brought.records);
        self.zone.write().expect(HELD).apply(key, change);
        let is_short = self.shares.lock().expect(HELD).set(&object, before.len(), part);
        if is_short {
            self.say(&object, part);
        }
    }

    /// Services that may have more than they have, as others have less now.
    pub(crate) fn due(&self) -> Vec<ObjectKey> {
        let due = self.shares.lock().expect(HELD).due();
        let named = due.iter().filter_map(|object| object.split_once('/'));
        named
            .map(|(namespace, name)| ObjectKey::new(namespace, name))
            .collect()
    }

    pub(crate) fn is_due(&self, key: &ObjectKey) -> bool {
        self.shares.lock().expect(HELD).is_due(&key.to_string())
    }

    fn say(&mut self, service: &str, now: Part) {
        let time = self.runtime.monotonic();
        if time.saturating_sub(self.since) >= SAID.1 {
            (self.since, self.said) = (time, 0);
        }
        self.said += 1;
        if self.said <= SAID.0 {
            let (has, needs) = (now.has, now.needs);
            tracing::warn!(
                service,
                has,
                needs,
                "fewer DNS records than needed: the namespace has its share of this node's"
            );
        }
    }
}
