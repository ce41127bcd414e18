//! Shares that namespaces have of the endpoints and ports that are written for their Services (decision 0109).
//!
//! All ports of a Service are written once for each set of numbers that its pods have for them: a product of two things that
//! a tenant chooses, for each of as many Services as it likes. Each namespace has a bound, a Service that finds less
//! room than it needs has fewer endpoints, and one whose namespace has much is looked at ever more seldom. Those without room
//! cost as much as others, so their steps count as well.

use k8s_openapi::api::core::v1::Service;
use machinery_client::{ApiResource, Object};
use machinery_meta::ObjectKey;
use machinery_reconcile::EventRecorder;
use machinery_runtime::Runtime;
use machinery_runtime::metrics::{Family, Reading};
use machinery_semantics::shares::{NamespaceShares, Part, ShareBounds};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::pod_control::reference;
use crate::views::ServiceView;

/// Units of an endpoint.
pub(crate) const ENDPOINT: usize = 1;
/// Units of a port: some 2 KB of memory with every reader.
const PORT: usize = 8;
/// Bytes of a port's names that count as another port.
const NAME_BYTES: usize = 48;
/// A namespace has room for 32,768 ports.
const BOUNDS: ShareBounds = ShareBounds {
    of_all: 1 << 21,
    of_namespace: 1 << 18,
    assured: 8_192,
};
/// Units of a namespace whose Services do not rest.
const LIGHT: usize = 8_192;
/// Rest of each Service for each unit of its namespace, so that all of them together keep a twentieth of a core busy, however
/// often their pods change.
const REST_OF_UNIT: Duration = Duration::from_nanos(12_500);
/// Steps of a namespace's Services without room beyond which they rest, and the rest of each Service for a step: a step takes
/// some 25 ns, so that these Services too keep a twentieth of a core busy.
const LIGHT_STEPS: usize = 32_768;
const REST_OF_STEP: Duration = Duration::from_nanos(500);
/// The longest rest of Services without room.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Plans that others overtake before one is taken as it is.
const ATTEMPTS: usize = 4;

/// Units of a port with names of so many bytes.
pub(crate) fn port_units(name_bytes: usize) -> usize {
    PORT * (1 + name_bytes / NAME_BYTES)
}

/// Units that a plan takes, and the steps that it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanCost {
    pub(crate) part: Part,
    pub(crate) steps: usize,
}

/// Units that were taken for a Service.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Services that may have more now.
    pub(crate) due: Vec<ObjectKey>,
    /// It has less than it needs, since now.
    pub(crate) is_short: bool,
}

/// Units in use, by Service.
pub(crate) struct EndpointShares {
    state: Arc<Mutex<State>>,
    _reading: Reading,
}

struct State {
    shares: NamespaceShares,
    /// Units of each Service that has some.
    by_service: HashMap<ObjectKey, usize>,
    /// Steps of each Service without room, by namespace.
    short_steps: HashMap<Box<str>, HashMap<Box<str>, usize>>,
    /// Objects from before the start were counted.
    seeded: bool,
}

impl State {
    fn has(&self, service: &ObjectKey) -> usize {
        self.by_service.get(service).copied().unwrap_or_default()
    }

    fn set(&mut self, service: &ObjectKey, part: Part) -> bool {
        let before = match part.has {
            0 => self.by_service.remove(service),
            has => self.by_service.insert(service.clone(), has),
        };
        let before = before.unwrap_or_default();
        self.shares.set(&service.to_string(), before, part)
    }

    fn set_short_steps(&mut self, service: &ObjectKey, steps: usize) {
        if steps > 0 {
            let own = self.short_steps.entry((&*service.namespace).into()).or_default();
            own.insert((&*service.name).into(), steps);
        } else if let Some(own) = self.short_steps.get_mut(&*service.namespace) {
            own.remove(&*service.name);
            if own.is_empty() {
                self.short_steps.remove(&*service.namespace);
            }
        }
    }

    fn short_steps(&self, namespace: &str) -> usize {
        let own = self.short_steps.get(namespace);
        own.map_or(0, |own| {
            own.values().fold(0, |all, steps| all.saturating_add(*steps))
        })
    }

    fn due(&mut self) -> Vec<ObjectKey> {
        let due = self.shares.due();
        let named = due.iter().filter_map(|own| own.split_once('/'));
        named
            .map(|(namespace, name)| ObjectKey::new(namespace, name))
            .collect()
    }
}

impl EndpointShares {
    /// Nothing in use; `short` counts Services without room by namespace.
    pub(crate) fn new(runtime: &Runtime, short: &Family) -> Self {
        let state = Arc::new(Mutex::new(State {
            shares: NamespaceShares::new(BOUNDS),
            by_service: HashMap::new(),
            short_steps: HashMap::new(),
            seeded: false,
        }));
        let read = Arc::clone(&state);
        let reading = runtime.metrics().read(short, move |samples| {
            for (namespace, count) in read.lock().shares.short_by_namespace() {
                samples.add(&[namespace], f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
            }
        });
        Self {
            state,
            _reading: reading,
        }
    }

    /// Counts what is stored from before, at the first call.
    pub(crate) fn seed(&self, stored: impl FnOnce(&mut dyn FnMut(ObjectKey, usize))) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.seeded, true) {
            return;
        }
        stored(&mut |service, units| {
            let has = state.has(&service) + units;
            state.set(&service, Part { has, needs: has });
        });
    }

    /// Units that a Service may have.
    pub(crate) fn room(&self, service: &ObjectKey) -> usize {
        let state = self.state.lock();
        state.shares.room(&service.to_string(), state.has(service))
    }

    /// Takes what a plan needs that was made with this room; `None` where another Service took of it meanwhile, and the plan
    /// is to be made again: not more often than a few times.
    pub(crate) fn take(&self, service: &ObjectKey, cost: PlanCost, attempt: usize) -> Option<Taken> {
        let PlanCost { part, steps } = cost;
        let mut state = self.state.lock();
        let room = state.shares.room(&service.to_string(), state.has(service));
        if part.has > room && attempt < ATTEMPTS {
            return None;
        }
        let is_short = state.set(service, part);
        state.set_short_steps(service, if part.has < part.needs { steps } else { 0 });
        let due = state.due();
        Some(Taken { due, is_short })
    }

    /// A Service has this now, without a plan.
    pub(crate) fn note(&self, service: &ObjectKey, units: usize) -> Vec<ObjectKey> {
        let mut state = self.state.lock();
        let part = Part {
            has: units,
            needs: units,
        };
        state.set(service, part);
        state.set_short_steps(service, 0);
        state.due()
    }

    /// Time for which a Service is not reconciled again.
    pub(crate) fn rest(&self, namespace: &str) -> Duration {
        let (units, steps) = {
            let state = self.state.lock();
            (state.shares.of_namespace(namespace), state.short_steps(namespace))
        };
        let rest = |count: usize, light: usize, of_one: Duration| match count <= light {
            true => Duration::ZERO,
            false => of_one.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)),
        };
        let of_short = rest(steps, LIGHT_STEPS, REST_OF_STEP).min(LONGEST_REST);
        rest(units, LIGHT, REST_OF_UNIT) + of_short
    }

    #[cfg(test)]
    pub(crate) fn of_namespace(&self, namespace: &str) -> usize {
        self.state.lock().shares.of_namespace(namespace)
    }
}

/// Records that a Service has fewer endpoints than pods, as its namespace has its share.
pub(crate) fn say_short(recorder: &EventRecorder, service: &Object<ServiceView>, what: &str) {
    let about = reference(&ApiResource::of::<Service>(), &service.header);
    let message = format!(
        "Some pods of Service {} are no endpoints: the Services of its namespace have as many ports and endpoints in {what} as a namespace may have",
        service.key()
    );
    recorder.warning(&about, "TooManyEndpoints", message);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Family = Family::new("short", "Short.", &["namespace"]);

    fn planned(has: usize, needs: usize) -> PlanCost {
        let part = Part { has, needs };
        PlanCost { part, steps: 0 }
    }

    #[tokio::test]
    async fn share_counts_what_is_stored_once() {
        let shares = EndpointShares::new(&Runtime::real(), &SHORT);
        let (a, b) = (ObjectKey::new("n", "a"), ObjectKey::new("n", "b"));
        for _ in 0..2 {
            shares.seed(|add| {
                add(a.clone(), 100_000);
                add(a.clone(), 100_000);
            });
        }
        assert_eq!(shares.room(&b), BOUNDS.of_namespace - 200_000);
        assert_eq!(shares.room(&a), BOUNDS.of_namespace);
        assert_eq!(shares.note(&a, 0), Vec::<ObjectKey>::new());
        assert_eq!(shares.of_namespace("n"), 0);
    }

    /// Two plans made with the same room do not both have it.
    #[tokio::test]
    async fn share_is_taken_by_the_first_plan() {
        let shares = EndpointShares::new(&Runtime::real(), &SHORT);
        let (a, b) = (ObjectKey::new("n", "a"), ObjectKey::new("n", "b"));
        let all = shares.room(&a);
        assert_eq!((all, shares.room(&b)), (BOUNDS.of_namespace, BOUNDS.of_namespace));
        assert!(shares.take(&a, planned(all, all), 0).is_some());
        assert!(shares.take(&b, planned(all, all), 0).is_none(), "made again");
        assert_eq!(shares.room(&b), 0);
        assert!(shares.take(&b, planned(0, all), 1).unwrap().is_short);
        assert_eq!(
            shares.note(&a, 0),
            std::slice::from_ref(&b),
            "there is room again"
        );
        let taken = shares.take(&b, planned(all, all), 0).unwrap();
        assert!(!taken.is_short && taken.due.is_empty());
    }

    /// Services of a namespace that has much rest, so that all of them together cost the same.
    #[tokio::test]
    async fn rest_grows_with_what_a_namespace_has() {
        let shares = EndpointShares::new(&Runtime::real(), &SHORT);
        assert_eq!(shares.rest("n"), Duration::ZERO);
        shares.note(&ObjectKey::new("n", "a"), LIGHT);
        assert_eq!(shares.rest("n"), Duration::ZERO);
        shares.note(&ObjectKey::new("n", "b"), BOUNDS.of_namespace - LIGHT);
        assert_eq!(shares.rest("n"), Duration::from_micros(3_276_800));
        assert_eq!(shares.rest("other"), Duration::ZERO);
    }

    /// They cost as much as those with room, at each change of a pod.
    #[tokio::test]
    async fn rest_grows_with_the_steps_of_services_without_room() {
        let shares = EndpointShares::new(&Runtime::real(), &SHORT);
        let service = |number: usize| ObjectKey::new("n", format!("s{number}"));
        let take = |number: usize, has: usize, steps: usize| {
            let part = Part { has, needs: 1 };
            shares
                .take(&service(number), PlanCost { part, steps }, 0)
                .unwrap();
        };
        take(0, 1, 10 * LIGHT_STEPS);
        assert_eq!(shares.rest("n"), Duration::ZERO, "it has room");
        take(1, 0, LIGHT_STEPS);
        assert_eq!(shares.rest("n"), Duration::ZERO);
        take(2, 0, 1_000_000 - LIGHT_STEPS);
        assert_eq!(shares.rest("n"), Duration::from_millis(500), "of both");
        take(2, 1, 1_000_000);
        shares.note(&service(1), 0);
        assert_eq!(shares.rest("n"), Duration::ZERO, "none is short");
        assert!(shares.state.lock().short_steps.is_empty());
        take(1, 0, usize::MAX);
        take(2, 0, usize::MAX);
        assert_eq!(shares.rest("n"), LONGEST_REST);
    }
}
