//! Shares that namespaces have of the rules of a node, and reports of services that have fewer than they need.

use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Family, Reading};
use machinery_semantics::shares::{NamespaceShares, Part, ShareBounds};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Elements of the table: some 100 bytes of each in the agent, and 64 in the kernel.
const BOUNDS: ShareBounds = ShareBounds {
    of_all: 1 << 20,
    of_namespace: 1 << 18,
    assured: 2_048,
};

const SHORT: Family = Family::new(
    "knarr_proxy_services_short_of_rules",
    "Services that have fewer rules than they need on this node, as their namespace has its share.",
    &["namespace"],
);
const RULES: Family = Family::new(
    "knarr_proxy_rules",
    "Elements of the service rules of this node.",
    &[],
);

/// Services that are named in a window of time; the metric has all of them.
const SAID: (u32, Duration) = (20, Duration::from_secs(600));

/// Callback for a service that has fewer rules than it needs.
pub(crate) type Short = Arc<dyn Fn(&str) + Send + Sync>;

/// Elements in use by namespace.
pub(crate) struct RuleShares {
    shares: Arc<Mutex<NamespaceShares>>,
    said: u32,
    since: Duration,
    short: Short,
    runtime: Runtime,
    _readings: [Reading; 2],
}

impl fmt::Debug for RuleShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleShares")
            .field("shares", &self.shares)
            .finish_non_exhaustive()
    }
}

const HELD: &str = "nothing panics while it is held";

impl RuleShares {
    pub(crate) fn new(runtime: Runtime, short: Short) -> Self {
        let shares = Arc::new(Mutex::new(NamespaceShares::new(BOUNDS)));
        let (of_short, of_rules) = (Arc::clone(&shares), Arc::clone(&shares));
        let metrics = runtime.metrics();
        let readings = [
            metrics.read(&SHORT, move |samples| {
                for (namespace, count) in of_short.lock().expect(HELD).short_by_namespace() {
                    samples.add(&[namespace], f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
                }
            }),
            metrics.read(&RULES, move |samples| {
                let all = of_rules.lock().expect(HELD).all();
                samples.add(&[], f64::from(u32::try_from(all).unwrap_or(u32::MAX)));
            }),
        ];
        Self {
            shares,
            said: 0,
            since: runtime.monotonic(),
            short,
            runtime,
            _readings: readings,
        }
    }

    /// Elements that a service may have, which has so many.
    pub(crate) fn room(&self, service: &str, has: usize) -> usize {
        self.shares.lock().expect(HELD).room(service, has)
    }

    /// A service had `before` elements and now has these.
    pub(crate) fn set(&mut self, service: &str, before: usize, now: Part) {
        if self.shares.lock().expect(HELD).set(service, before, now) {
            self.say(service, now);
        }
    }

    /// Services that may have more than they have; see [`NamespaceShares::due`].
    pub(crate) fn due(&self) -> Vec<Box<str>> {
        self.shares.lock().expect(HELD).due()
    }

    pub(crate) fn is_due(&self, service: &str) -> bool {
        self.shares.lock().expect(HELD).is_due(service)
    }

    fn say(&mut self, service: &str, now: Part) {
        let time = self.runtime.monotonic();
        if time.saturating_sub(self.since) >= SAID.1 {
            (self.since, self.said) = (time, 0);
        }
        self.said += 1;
        if self.said > SAID.0 {
            return;
        }
        tracing::warn!(
            service,
            has = now.has,
            needs = now.needs,
            "fewer service rules than needed: the namespace has its share of this node's"
        );
        (self.short)(service);
    }
}
