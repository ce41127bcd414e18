//! Calls of one webhook that are under way: bounded together, and for each namespace, so that one tenant's requests do not
//! take all places while a webhook is slow. A large call takes several places: its body is made once it has them.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Calls of one webhook.
const MAX_CALLS: usize = 128;
/// Of these for requests of one namespace.
const SHARE_OF_NAMESPACE: u32 = 64;
/// Bytes of objects for which a call takes another place.
const BYTES_OF_PLACE: usize = 128 << 10;
/// The most places of one call: four of the largest are under way for a namespace.
const MAX_PLACES: u32 = SHARE_OF_NAMESPACE / 4;

/// Large answers of one webhook that are held at once: a quarter of all webhooks'.
const LARGE_ANSWERS: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Gate {
    all: Semaphore,
    large: Semaphore,
    shares: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

/// Places of a call; others may have them once this is dropped.
#[derive(Debug)]
pub struct HookPlace<'a> {
    gate: &'a Gate,
    namespace: &'a str,
    _share: Option<OwnedSemaphorePermit>,
    _all: Option<SemaphorePermit<'a>>,
}

/// Room of a large answer.
#[derive(Debug)]
pub(super) struct LargeRoom<'a> {
    _own: Option<SemaphorePermit<'a>>,
    _all: Option<SemaphorePermit<'a>>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            all: Semaphore::new(MAX_CALLS),
            large: Semaphore::new(LARGE_ANSWERS),
            shares: Mutex::default(),
        }
    }

    /// Waits for the places of a call with so many bytes; the caller's time bounds it.
    pub(super) async fn enter<'a>(&'a self, namespace: &'a str, bytes: usize) -> HookPlace<'a> {
        let places = 1 + u32::try_from(bytes / BYTES_OF_PLACE).unwrap_or(MAX_PLACES);
        let places = places.min(MAX_PLACES);
        let share = {
            let mut shares = self.shares.lock();
            let share = shares.entry(namespace.into());
            Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(SHARE_OF_NAMESPACE as usize))))
        };
        let mut place = HookPlace {
            gate: self,
            namespace,
            _share: None,
            _all: None,
        };
        // Neither is ever closed.
        place._share = share.acquire_many_owned(places).await.ok();
        place._all = self.all.acquire_many(places).await.ok();
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

    /// Namespaces with calls.
    #[cfg(test)]
    pub(super) fn namespaces(&self) -> usize {
        self.shares.lock().len()
    }
}

impl Drop for HookPlace<'_> {
    fn drop(&mut self) {
        self._share = None;
        let mut shares = self.gate.shares.lock();
        // The map's own is the last one.
        if shares
            .get(self.namespace)
            .is_some_and(|own| Arc::strong_count(own) == 1)
        {
            shares.remove(self.namespace);
        }
    }
}
