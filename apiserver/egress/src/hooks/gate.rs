//! Calls of one webhook that are under way: bounded together, and for each namespace, so that one tenant's requests do not
//! take all places while a webhook is slow.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Calls of one webhook.
const MAX_CALLS: usize = 128;
/// Of these for requests of one namespace.
const SHARE_OF_NAMESPACE: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Gate {
    all: Semaphore,
    shares: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

/// A place; others may have it once this is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    gate: &'a Gate,
    namespace: &'a str,
    _share: Option<OwnedSemaphorePermit>,
    _all: Option<SemaphorePermit<'a>>,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            all: Semaphore::new(MAX_CALLS),
            shares: Mutex::default(),
        }
    }

    /// Waits for a place; the caller's timeout bounds it.
    pub(super) async fn enter<'a>(&'a self, namespace: &'a str) -> Place<'a> {
        let share = {
            let mut shares = self.shares.lock();
            let share = shares.entry(namespace.into());
            Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(SHARE_OF_NAMESPACE))))
        };
        let mut place = Place {
            gate: self,
            namespace,
            _share: None,
            _all: None,
        };
        // Neither is ever closed.
        place._share = share.acquire_owned().await.ok();
        place._all = self.all.acquire().await.ok();
        place
    }

    /// Namespaces with calls.
    #[cfg(test)]
    pub(super) fn namespaces(&self) -> usize {
        self.shares.lock().len()
    }
}

impl Drop for Place<'_> {
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
