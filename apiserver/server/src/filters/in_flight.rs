//! How many requests are answered at once: reading and changing ones are counted apart, as upstream's in-flight limits.
//!
//! Who finds no place waits for one, as under upstream's fair queues: bounded in number and in time, and the users who
//! wait take turns, so that nobody's flood keeps the others out. Priority levels are to come in this place.

use super::too_many;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{InFlightGuard, Metrics};
use crate::server::Core;
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests of one user that wait at once; two bursts of the busiest controller.
const MAX_WAITING_OF_USER: usize = 1_024;
/// Requests that wait at once, of all users.
const MAX_WAITING: usize = 4_096;
/// Of the time a request may take it waits this part at most, as upstream's do.
const WAITING_PART: u32 = 4;

pub(crate) struct InFlight {
    reading: Arc<Places>,
    mutating: Arc<Places>,
    metrics: Arc<Metrics>,
    longest_wait: Duration,
}

impl InFlight {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            reading: Places::new(core.config.max_requests_inflight),
            mutating: Places::new(core.config.max_mutating_requests_inflight),
            metrics: Arc::clone(&core.metrics),
            longest_wait: core.config.request_timeout / WAITING_PART,
        }
    }
}

impl Filter for InFlight {
    fn call(&self, exchange: Exchange, next: Next) -> BoxFuture<'static, Response> {
        if exchange.is_long_running() {
            return next.run(exchange);
        }
        let (kind, places) = if exchange.is_mutating() {
            ("mutating", &self.mutating)
        } else {
            ("readOnly", &self.reading)
        };
        let user = &exchange.context.user;
        // Those who repair the cluster always get through.
        if user.in_group(UserInfo::MASTERS) {
            return run(exchange, next, places.take(), self.metrics.in_flight(kind));
        }
        match places.ask(&user.name) {
            Asked::Taken(permit) => run(exchange, next, Some(permit), self.metrics.in_flight(kind)),
            Asked::Full => {
                self.metrics.dropped(kind);
                Box::pin(std::future::ready(too_many()))
            }
            Asked::Wait(turn) => {
                let (metrics, longest) = (Arc::clone(&self.metrics), self.longest_wait);
                let runtime = exchange.context.runtime.clone();
                Box::pin(async move {
                    match runtime.timeout(longest, turn).await {
                        Ok(Ok(permit)) => run(exchange, next, Some(permit), metrics.in_flight(kind)).await,
                        _ => {
                            metrics.dropped(kind);
                            too_many()
                        }
                    }
                })
            }
        }
    }
}

fn run(
    mut exchange: Exchange,
    next: Next,
    permit: Option<Permit>,
    counted: InFlightGuard,
) -> BoxFuture<'static, Response> {
    let place = Place(Arc::new((permit, counted)));
    exchange.request.extensions_mut().insert(place.clone());
    Box::pin(async move {
        let response = next.run(exchange).await;
        drop(place);
        response
    })
}

/// A place among those in flight. It travels with the request: a mutation that outlives its client keeps it to its end.
#[derive(Clone)]
pub(crate) struct Place(
    #[expect(dead_code, reason = "held, never read")] Arc<(Option<Permit>, InFlightGuard)>,
);

/// So many places, and who waits for one.
struct Places(Mutex<State>);

struct State {
    free: usize,
    /// By user; no queue is empty.
    waiting: BTreeMap<Box<str>, VecDeque<oneshot::Sender<Permit>>>,
    /// The users who wait, whose turn is next first.
    turns: VecDeque<Box<str>>,
    /// How many wait, those who gave up and were not passed over yet included.
    count: usize,
}

enum Asked {
    Taken(Permit),
    Wait(oneshot::Receiver<Permit>),
    Full,
}

impl Places {
    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            free,
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            count: 0,
        })))
    }

    fn take(self: &Arc<Self>) -> Option<Permit> {
        let taken = self.0.lock().take();
        taken.then(|| Permit(Some(Arc::clone(self))))
    }

    fn ask(self: &Arc<Self>, user: &str) -> Asked {
        let mut state = self.0.lock();
        if state.take() {
            return Asked::Taken(Permit(Some(Arc::clone(self))));
        }
        state.wait(user)
    }

    /// A place was left: it goes to the next who still waits, or is free.
    fn left(self: Arc<Self>) {
        let mut places = self;
        loop {
            let next = {
                let mut state = places.0.lock();
                let next = state.next();
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Permit(Some(places))) {
                Ok(()) => return,
                // This one has given up; its permit is not to come back here by being dropped.
                Err(mut permit) => match permit.0.take() {
                    Some(again) => places = again,
                    None => return,
                },
            }
        }
    }
}

impl State {
    /// Invariant: while somebody waits nothing is free.
    fn take(&mut self) -> bool {
        let free = self.free > 0;
        self.free -= usize::from(free);
        free
    }

    fn wait(&mut self, user: &str) -> Asked {
        if self.count >= MAX_WAITING || self.of(user) >= MAX_WAITING_OF_USER {
            self.forget_who_gave_up();
        }
        if self.count >= MAX_WAITING || self.of(user) >= MAX_WAITING_OF_USER {
            return Asked::Full;
        }
        let (sender, turn) = oneshot::channel();
        self.count += 1;
        match self.waiting.get_mut(user) {
            Some(queue) => queue.push_back(sender),
            None => {
                self.waiting.insert(user.into(), VecDeque::from([sender]));
                self.turns.push_back(user.into());
            }
        }
        Asked::Wait(turn)
    }

    fn of(&self, user: &str) -> usize {
        self.waiting.get(user).map_or(0, VecDeque::len)
    }

    fn forget_who_gave_up(&mut self) {
        for queue in self.waiting.values_mut() {
            queue.retain(|sender| !sender.is_closed());
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
        let waiting = &self.waiting;
        self.turns.retain(|user| waiting.contains_key(user));
        self.count = waiting.values().map(VecDeque::len).sum();
    }

    /// The first who still waits of the user whose turn it is; the user's next turn is after everybody else's.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        loop {
            let user = self.turns.pop_front()?;
            let queue = self.waiting.get_mut(&user)?;
            let waited = queue.len();
            let next = std::iter::from_fn(|| queue.pop_front()).find(|sender| !sender.is_closed());
            self.count -= waited - queue.len();
            if queue.is_empty() {
                self.waiting.remove(&user);
            } else {
                self.turns.push_back(user);
            }
            if next.is_some() {
                return next;
            }
        }
    }
}

/// A place that was taken; dropped, it is left.
struct Permit(Option<Arc<Places>>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(places) = self.0.take() {
            places.left();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(asked: Asked) -> Permit {
        match asked {
            Asked::Taken(permit) => permit,
            _ => panic!("no place"),
        }
    }

    fn waits(asked: Asked) -> oneshot::Receiver<Permit> {
        match asked {
            Asked::Wait(turn) => turn,
            _ => panic!("one who need not wait, or may not"),
        }
    }

    #[test]
    fn users_take_turns_and_who_gave_up_is_passed_over() {
        let places = Places::new(1);
        let first = taken(places.ask("a"));
        let mut of_a = [waits(places.ask("a")), waits(places.ask("a"))];
        let gone = waits(places.ask("b"));
        let mut of_b = waits(places.ask("b"));
        drop(gone);
        drop(first);
        let permit = of_a[0].try_recv().unwrap();
        assert!(of_a[1].try_recv().is_err() && of_b.try_recv().is_err());
        drop(permit);
        let permit = of_b.try_recv().unwrap();
        drop(permit);
        drop(of_a[1].try_recv().unwrap());
        drop(taken(places.ask("c")));
    }

    #[test]
    fn a_place_given_to_one_who_leaves_at_that_moment_is_not_lost() {
        let places = Places::new(1);
        let first = taken(places.ask("a"));
        let turn = waits(places.ask("a"));
        drop(first);
        drop(turn);
        drop(taken(places.ask("a")));
    }

    #[test]
    fn nobody_waits_without_bound_and_a_flood_leaves_room_for_others() {
        let places = Places::new(1);
        let _first = taken(places.ask("a"));
        let mut flood: Vec<_> = (0..MAX_WAITING_OF_USER).map(|_| waits(places.ask("a"))).collect();
        assert!(matches!(places.ask("a"), Asked::Full));
        let _other = waits(places.ask("b"));
        flood.pop();
        let _again = waits(places.ask("a"));
        assert!(matches!(places.ask("a"), Asked::Full));
    }
}
