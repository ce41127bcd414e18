//! How many requests are answered at once: reading and changing ones are counted apart, as upstream's in-flight limits.
//!
//! Who finds no place waits for one, as under upstream's fair queues: bounded in number and in time, and the users who
//! wait take turns, so that nobody's flood keeps the others out. A part of the places is not for ordinary users at all
//! ([`super::standing`]): the simplest form of upstream's priority levels.

use super::standing::Standing;
use super::too_many;
use crate::exchange::{Exchange, Response};
use crate::handler_chain::{Filter, Next};
use crate::metrics::{InFlightGuard, Metrics};
use crate::server::Core;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests of one user that wait at once; two bursts of the busiest controller.
const MAX_WAITING_OF_USER: usize = 1_024;
/// Requests that wait at once in one line, of all its users. There are four: who reads and who changes, ordinary users and the
/// system's own.
const MAX_WAITING: usize = 4_096;
/// Of the time a request may take it waits this part at most, as upstream's do.
const WAITING_PART: u32 = 4;
/// This part of the places is for the system alone, which may have others too while nobody waits for them.
const RESERVED_PART: usize = 4;

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
        let standing = Standing::of(&exchange);
        // Those who repair the cluster always get through.
        if standing == Standing::Repair {
            return run(exchange, next, places.take(), self.metrics.in_flight(kind));
        }
        match places.ask(standing, &exchange.context.user.name) {
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
    /// How many more of all places ordinary users may have.
    free_for_ordinary: usize,
    ordinary: Line,
    system: Line,
}

/// Who waits, by user.
#[derive(Default)]
struct Line {
    /// No queue is empty.
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
            free_for_ordinary: free - free / RESERVED_PART,
            ordinary: Line::default(),
            system: Line::default(),
        })))
    }

    /// A place for those who do not wait for one.
    fn take(self: &Arc<Self>) -> Option<Permit> {
        let taken = self.0.lock().take(Standing::Repair);
        taken.then(|| self.permit(Standing::Repair))
    }

    fn ask(self: &Arc<Self>, standing: Standing, user: &str) -> Asked {
        let mut state = self.0.lock();
        if state.take(standing) {
            return Asked::Taken(self.permit(standing));
        }
        state.line(standing).wait(user)
    }

    fn permit(self: &Arc<Self>, standing: Standing) -> Permit {
        Permit(Some((Arc::clone(self), standing)))
    }

    /// A place was left: it goes to the next who still waits, or is free.
    fn left(self: &Arc<Self>, standing: Standing) {
        let mut left = standing;
        loop {
            let next = {
                let mut state = self.0.lock();
                state.leave(left);
                state.next()
            };
            let Some((standing, next)) = next else { return };
            match next.send(self.permit(standing)) {
                Ok(()) => return,
                // This one has given up; its permit is not to come back here by being dropped.
                Err(mut permit) => {
                    permit.0 = None;
                    left = standing;
                }
            }
        }
    }
}

impl State {
    /// Invariant: while the system waits nothing is free, and while others wait nothing that they may have.
    fn take(&mut self, standing: Standing) -> bool {
        let is_ordinary = standing == Standing::Ordinary;
        let taken = self.free > 0 && (!is_ordinary || self.free_for_ordinary > 0);
        self.free -= usize::from(taken);
        self.free_for_ordinary -= usize::from(taken && is_ordinary);
        taken
    }

    fn leave(&mut self, standing: Standing) {
        self.free += 1;
        self.free_for_ordinary += usize::from(standing == Standing::Ordinary);
    }

    fn line(&mut self, standing: Standing) -> &mut Line {
        match standing {
            Standing::Ordinary => &mut self.ordinary,
            Standing::Repair | Standing::System => &mut self.system,
        }
    }

    /// Takes a free place for the next who waits. Ordinary users come first as long as they have less than may be theirs:
    /// the system has its own part then.
    fn next(&mut self) -> Option<(Standing, oneshot::Sender<Permit>)> {
        for standing in [Standing::Ordinary, Standing::System] {
            if !self.take(standing) {
                continue;
            }
            match self.line(standing).next() {
                Some(next) => return Some((standing, next)),
                None => self.leave(standing),
            }
        }
        None
    }
}

impl Line {
    fn wait(&mut self, user: &str) -> Asked {
        if self.is_full(user) {
            self.forget_who_gave_up();
        }
        if self.of(user) >= MAX_WAITING_OF_USER || (self.count >= MAX_WAITING && !self.make_room_for(user)) {
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

    fn is_full(&self, user: &str) -> bool {
        self.count >= MAX_WAITING || self.of(user) >= MAX_WAITING_OF_USER
    }

    fn of(&self, user: &str) -> usize {
        self.waiting.get(user).map_or(0, VecDeque::len)
    }

    /// Who has most in a full line gives up the youngest for one who has less: some users' floods keep no other out.
    fn make_room_for(&mut self, user: &str) -> bool {
        let own = self.of(user);
        let longest = self.waiting.values_mut().max_by_key(|queue| queue.len());
        let Some(longest) = longest.filter(|queue| queue.len() > own + 1) else {
            return false;
        };
        // Its sender dropped, it is told that it waits no longer.
        longest.pop_back();
        self.count -= 1;
        true
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
struct Permit(Option<(Arc<Places>, Standing)>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((places, standing)) = self.0.take() {
            places.left(standing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(places: &Arc<Places>, user: &str) -> Asked {
        places.ask(Standing::Ordinary, user)
    }

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
        let first = taken(ask(&places, "a"));
        let mut of_a = [waits(ask(&places, "a")), waits(ask(&places, "a"))];
        let gone = waits(ask(&places, "b"));
        let mut of_b = waits(ask(&places, "b"));
        drop(gone);
        drop(first);
        let permit = of_a[0].try_recv().unwrap();
        assert!(of_a[1].try_recv().is_err() && of_b.try_recv().is_err());
        drop(permit);
        let permit = of_b.try_recv().unwrap();
        drop(permit);
        drop(of_a[1].try_recv().unwrap());
        drop(taken(ask(&places, "c")));
    }

    #[test]
    fn a_place_given_to_one_who_leaves_at_that_moment_is_not_lost() {
        let places = Places::new(1);
        let first = taken(ask(&places, "a"));
        let turn = waits(ask(&places, "a"));
        drop(first);
        drop(turn);
        drop(taken(ask(&places, "a")));
    }

    #[test]
    fn nobody_waits_without_bound_and_a_flood_leaves_room_for_others() {
        let places = Places::new(1);
        let _first = taken(ask(&places, "a"));
        let mut flood: Vec<_> = (0..MAX_WAITING_OF_USER)
            .map(|_| waits(ask(&places, "a")))
            .collect();
        assert!(matches!(ask(&places, "a"), Asked::Full));
        let _other = waits(ask(&places, "b"));
        flood.pop();
        let _again = waits(ask(&places, "a"));
        assert!(matches!(ask(&places, "a"), Asked::Full));
    }

    #[test]
    fn many_floods_leave_room_for_others() {
        let places = Places::new(1);
        let _first = taken(ask(&places, "a"));
        let mut floods = Vec::new();
        for at in 0..MAX_WAITING {
            let user = at / MAX_WAITING_OF_USER;
            floods.push(waits(ask(&places, &user.to_string())));
        }
        let mut late: Vec<_> = (0..3).map(|_| waits(ask(&places, "late"))).collect();
        assert!(late.iter_mut().all(|turn| turn.try_recv().is_err()));
        let given_up = |turn: &mut oneshot::Receiver<Permit>| {
            matches!(turn.try_recv(), Err(oneshot::error::TryRecvError::Closed))
        };
        let mut gone = 0;
        floods
            .iter_mut()
            .for_each(|turn| gone += usize::from(given_up(turn)));
        assert_eq!(gone, 3);
        assert!(!late.iter_mut().any(given_up));
    }

    #[test]
    fn a_part_of_the_places_is_the_systems() {
        let places = Places::new(4);
        let node = || places.ask(Standing::System, "system:node:n");
        let mut crowd: Vec<_> = (0..3).map(|_| taken(ask(&places, "a"))).collect();
        let mut of_a = waits(ask(&places, "a"));
        let own = taken(node());
        let mut of_node = waits(node());
        // The crowd has all it may have: what the system leaves is the system's.
        drop(own);
        let _own = of_node.try_recv().unwrap();
        assert!(of_a.try_recv().is_err());
        // What the crowd leaves is the crowd's, as long as one of it waits.
        let mut of_node = waits(node());
        crowd.pop();
        let _of_a = of_a.try_recv().unwrap();
        assert!(of_node.try_recv().is_err());
        crowd.pop();
        let more = of_node.try_recv().unwrap();
        // The system has two now. Ordinary users get their part back before the system gets more.
        let (mut of_b, mut of_node) = (waits(ask(&places, "b")), waits(node()));
        drop(more);
        let _of_b = of_b.try_recv().unwrap();
        assert!(of_node.try_recv().is_err());
    }
}
