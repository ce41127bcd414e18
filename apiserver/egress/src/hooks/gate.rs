//! Calls of one webhook that are under way: bounded together and by namespace, so that one tenant's requests do not take all
//! places while a webhook is slow. A large call takes several places: its body is made once it has them.
//!
//! A namespace has no more places than it leaves free: the first may have half of them, the next half of the rest. A place
//! that becomes free goes to the namespace that has fewest, so that one with a single call waits for none of those that
//! others have in line; a large call waits as long as small ones of others take the places that it needs.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Calls of one webhook.
const MAX_CALLS: usize = 128;
/// Bytes of objects for which a call takes another place.
const BYTES_OF_PLACE: usize = 128 << 10;
/// The most places of one call: four of the largest are under way for a namespace.
const MAX_PLACES: usize = MAX_CALLS / 8;

/// Large answers of one webhook that are held at once: a quarter of all webhooks'.
const LARGE_ANSWERS: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    large: Semaphore,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Places by namespace; one without any is not there.
    held: HashMap<Box<str>, usize>,
    /// In the order of arrival.
    waiting: VecDeque<Waiting>,
    last: u64,
}

/// A call that waits for its places.
#[derive(Debug)]
struct Waiting {
    id: u64,
    namespace: Box<str>,
    places: usize,
    granted: oneshot::Sender<()>,
}

impl State {
    fn held(&self, namespace: &str) -> usize {
        self.held.get(namespace).copied().unwrap_or(0)
    }

    fn fits(&self, namespace: &str, places: usize) -> bool {
        self.held(namespace) + places <= self.free
    }

    fn take(&mut self, namespace: &str, places: usize) {
        self.free -= places;
        *self.held.entry(namespace.into()).or_default() += places;
    }

    fn give_back(&mut self, namespace: &str, places: usize) {
        self.free += places;
        if let Some(own) = self.held.get_mut(namespace) {
            *own -= places;
            if *own == 0 {
                self.held.remove(namespace);
            }
        }
    }

    /// The place in the line of the call that is next: of the first ones of namespaces that of the one that has fewest places.
    fn next(&self) -> Option<usize> {
        let mut seen = HashSet::new();
        let first = self.waiting.iter().enumerate();
        let first = first.filter(|(_, own)| seen.insert(&*own.namespace));
        let fitting = first.filter(|(_, own)| self.fits(&own.namespace, own.places));
        let next = fitting.min_by_key(|(_, own)| self.held(&own.namespace));
        next.map(|(at, _)| at)
    }

    fn grant(&mut self) {
        while let Some(next) = self.next().and_then(|at| self.waiting.remove(at)) {
            self.take(&next.namespace, next.places);
            // One that has left gives them back.
            let _ = next.granted.send(());
        }
    }
}

/// Places of a call, or in the line for them; others may have them once this is dropped.
#[derive(Debug)]
pub struct HookPlace<'a> {
    gate: &'a Gate,
    namespace: &'a str,
    places: usize,
    /// Of the line.
    id: u64,
}

/// Room of a large answer.
#[derive(Debug)]
pub(super) struct LargeRoom<'a> {
    _own: Option<SemaphorePermit<'a>>,
    _all: Option<SemaphorePermit<'a>>,
}

impl Gate {
    #[expect(clippy::new_without_default, reason = "one is made for each webhook")]
    pub fn new() -> Self {
        Self::of(MAX_CALLS)
    }

    /// A gate for so many calls at once.
    pub fn of(calls: usize) -> Self {
        Self {
            state: Mutex::new(State {
                free: calls,
                held: HashMap::new(),
                waiting: VecDeque::new(),
                last: 0,
            }),
            large: Semaphore::new(LARGE_ANSWERS),
        }
    }

    /// Waits for the places of a call with so many bytes; the caller's time bounds it.
    pub async fn enter<'a>(&'a self, namespace: &'a str, bytes: usize) -> HookPlace<'a> {
        let places = (1 + bytes / BYTES_OF_PLACE).min(MAX_PLACES);
        let (place, granted) = {
            let mut state = self.state.lock();
            state.last += 1;
            let id = state.last;
            let (granted, receiver) = oneshot::channel();
            state.waiting.push_back(Waiting {
                id,
                namespace: namespace.into(),
                places,
                granted,
            });
            state.grant();
            let place = HookPlace {
                gate: self,
                namespace,
                places,
                id,
            };
            (place, receiver)
        };
        // It is not dropped before.
        let _ = granted.await;
        place
    }

    /// Waits for the room of a large answer: the webhook's own, so that one which sends slowly keeps no other waiting, and then
    /// that of all.
    pub(super) async fn large<'a>(&'a self, all: &'a Semaphore) -> LargeRoom<'a> {
        // Neither is ever closed.
        LargeRoom {
            _own: self.large.acquire().await.ok(),
            _all: all.acquire().await.ok(),
        }
    }

    /// Namespaces with calls, and calls that wait.
    #[cfg(test)]
    pub(super) fn figures(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.held.len(), state.waiting.len())
    }
}

impl Drop for HookPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        match state.waiting.iter().position(|own| own.id == self.id) {
            Some(at) => drop(state.waiting.remove(at)),
            None => state.give_back(self.namespace, self.places),
        }
        state.grant();
    }
}
