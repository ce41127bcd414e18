//! Bounds of the reviews that clients of port 10250 make the agent send to the API server: any pod can invent tokens.
//!
//! Each asker has a rate and a number of reviews in flight, and all together have both. The less is left of what all have, the
//! more an asker must have left of its own: one that is new finds room. One review serves all requests that need its
//! answer at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

use super::auth::Refusal;

/// A rate, what may be sent at once after a time of rest, and the reviews in flight.
#[derive(Debug)]
struct Limits {
    interval: Duration,
    burst: u32,
    in_flight: u32,
}

/// A hundred pods that send what they may take no more than the rate of all.
const OF_ASKER: Limits = Limits {
    interval: Duration::from_secs(2),
    burst: 20,
    in_flight: 4,
};
/// The rate and burst of an upstream kubelet's client (`kubeAPIQPS`, `kubeAPIBurst`).
const OF_ALL: Limits = Limits {
    interval: Duration::from_millis(20),
    burst: 100,
    in_flight: 32,
};

#[derive(Debug, Default, Clone, Copy)]
struct Share {
    /// Each review is paid for with its part of a second, some in advance.
    paid_until: Duration,
    in_flight: u32,
}

impl Share {
    fn debt(self, now: Duration) -> Duration {
        self.paid_until.saturating_sub(now)
    }

    fn has_room(self, limits: &Limits, now: Duration) -> bool {
        self.in_flight < limits.in_flight
            && self.debt(now) + limits.interval <= limits.interval * limits.burst
    }

    /// The used part of the limits, from 0 to 1.
    fn used(self, limits: &Limits, now: Duration) -> f64 {
        let in_flight = f64::from(self.in_flight) / f64::from(limits.in_flight);
        let debt = self.debt(now).as_secs_f64() / (limits.interval * limits.burst).as_secs_f64();
        in_flight.max(debt)
    }

    fn begin(&mut self, limits: &Limits, now: Duration) {
        self.paid_until = self.paid_until.max(now) + limits.interval;
        self.in_flight += 1;
    }
}

/// The rate of all bounds the askers that are remembered.
#[derive(Debug)]
struct Rates<A> {
    all: Share,
    askers: HashMap<A, Share>,
}

impl<A: Hash + Eq + Clone> Rates<A> {
    /// Takes the room of a review, where there is any.
    fn begin(&mut self, asker: &A, now: Duration) -> bool {
        self.askers
            .retain(|_, share| share.in_flight > 0 || share.paid_until > now);
        let own = self.askers.get(asker).copied().unwrap_or_default();
        // From the moment when half of everything is used.
        let gives_way = own.used(&OF_ASKER, now) > 2.0 * (1.0 - self.all.used(&OF_ALL, now));
        if gives_way || !own.has_room(&OF_ASKER, now) || !self.all.has_room(&OF_ALL, now) {
            return false;
        }
        self.all.begin(&OF_ALL, now);
        self.askers
            .entry(asker.clone())
            .or_default()
            .begin(&OF_ASKER, now);
        true
    }

    fn end(&mut self, asker: &A) {
        self.all.in_flight -= 1;
        if let Some(own) = self.askers.get_mut(asker) {
            own.in_flight -= 1;
        }
    }
}

/// A review in flight.
struct InFlight<A: Hash + Eq + Clone> {
    rates: Arc<Mutex<Rates<A>>>,
    asker: A,
}

impl<A: Hash + Eq + Clone> Drop for InFlight<A> {
    fn drop(&mut self) {
        self.rates.lock().end(&self.asker);
    }
}

type Answer<V> = BoxFuture<'static, Result<V, Refusal>>;
type Flights<K, V> = HashMap<K, WeakShared<Answer<V>>>;

/// Reviews of one kind: askers `A`, questions `K`, answers `V`.
pub(super) struct Reviews<A, K, V> {
    rates: Arc<Mutex<Rates<A>>>,
    /// Reviews under way. One that has ended, or has no waiter left, is dropped when the next begins.
    flights: Mutex<Flights<K, V>>,
}

impl<A, K, V> Default for Reviews<A, K, V> {
    fn default() -> Self {
        let rates = Rates {
            all: Share::default(),
            askers: HashMap::new(),
        };
        Self {
            rates: Arc::new(Mutex::new(rates)),
            flights: Mutex::default(),
        }
    }
}

impl<A, K, V> Reviews<A, K, V>
where
    A: Hash + Eq + Clone + Send + 'static,
    K: Hash + Eq,
    V: Clone + Send + 'static,
{
    /// The answer of the review of this question that is in flight, or else of a new one.
    pub(super) async fn ask(
        &self,
        asker: A,
        question: K,
        now: Duration,
        review: impl Future<Output = Result<V, Refusal>> + Send + 'static,
    ) -> Result<V, Refusal> {
        let flight = self.flight(asker, question, now, review)?;
        flight.await
    }

    fn flight(
        &self,
        asker: A,
        question: K,
        now: Duration,
        review: impl Future<Output = Result<V, Refusal>> + Send + 'static,
    ) -> Result<Shared<Answer<V>>, Refusal> {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&question).and_then(WeakShared::upgrade) {
            return Ok(flight);
        }
        if !self.rates.lock().begin(&asker, now) {
            return Err(Refusal::TooMany);
        }
        let rates = Arc::clone(&self.rates);
        let place = InFlight { rates, asker };
        let flight = async move {
            let _place = place;
            review.await
        };
        let flight = flight.boxed().shared();
        flights.retain(|_, flight| flight.upgrade().is_some());
        if let Some(weak) = flight.downgrade() {
            flights.insert(question, weak);
        }
        Ok(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Reviews<u32, u32, u32>;

    /// Reviews that were answered, of `count` questions from one asker.
    fn answered(reviews: &Numbers, asker: u32, now: u64, count: u32) -> usize {
        let ask = |number: &u32| {
            let answer = reviews.ask(asker, *number, Duration::from_secs(now), async { Ok(1) });
            answer.now_or_never() == Some(Ok(1))
        };
        (0..count).filter(ask).count()
    }

    #[test]
    fn reviews_of_one_asker_have_a_rate() {
        let reviews = Numbers::default();
        assert_eq!(answered(&reviews, 1, 5, 1_000), 20);
        assert_eq!(answered(&reviews, 2, 5, 1), 1, "another one's");
        assert_eq!(answered(&reviews, 1, 9, 1_000), 2);
        assert_eq!(answered(&reviews, 1, 60, 1_000), 20);
    }

    #[test]
    fn reviews_of_many_askers_leave_room_for_a_new_one() {
        let reviews = Numbers::default();
        let crowd = |now| {
            let each = (0..50).map(|asker| answered(&reviews, asker, now, 1_000));
            each.sum::<usize>()
        };
        assert_eq!(crowd(5), 100);
        for now in 6..25 {
            assert!(crowd(now) <= 50);
        }
        for now in 25..35 {
            assert!(crowd(now) > 25, "more than the crowd's own rate");
            let new = 1_000 + u32::try_from(now).unwrap();
            assert_eq!(answered(&reviews, new, now, 1), 1, "second {now}");
        }
        assert!(reviews.rates.lock().askers.len() <= 150);
    }

    #[test]
    fn reviews_in_flight_are_bounded_and_shared() {
        let reviews = Numbers::default();
        let now = Duration::from_secs(5);
        let begin = |asker, number| reviews.flight(asker, number, now, futures::future::pending());
        let mut held: Vec<_> = (0..10).filter_map(|number| begin(1, number).ok()).collect();
        assert_eq!(held.len(), 4);
        assert!(begin(1, 3).is_ok(), "of a question that is in flight");
        held.extend((100..200).filter_map(|asker| begin(asker, asker).ok()));
        assert_eq!(held.len(), 32);
        drop(held);
        assert!(begin(1, 20).is_ok());
        assert_eq!(reviews.flights.lock().len(), 1);
    }
}
