//! Room for lists in conversion: of a kind together, and of these for each namespace, so that one tenant's lists do not keep
//! those of others waiting.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Mebibytes of lists of a kind that are converted at a time; of these for one namespace, and at most for one list.
const LIST_ROOM: usize = 32;
const MOST_OF_NAMESPACE: usize = LIST_ROOM / 2;
const MOST_OF_LIST: u32 = 16;

/// Room of one kind.
#[derive(Debug)]
pub(super) struct ListRoom {
    all: Semaphore,
    shares: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

/// Room of a list; others may have it once this is dropped.
#[derive(Debug)]
pub(crate) struct ListPlace<'a> {
    room: &'a ListRoom,
    namespace: Box<str>,
    _share: Option<OwnedSemaphorePermit>,
    _all: Option<SemaphorePermit<'a>>,
}

impl Default for ListRoom {
    fn default() -> Self {
        Self {
            all: Semaphore::new(LIST_ROOM),
            shares: Mutex::default(),
        }
    }
}

impl ListRoom {
    /// Waits for the room of a list of a namespace (empty for one of several) with so many bytes to convert.
    pub(super) async fn enter(&self, namespace: &str, bytes: usize) -> Option<ListPlace<'_>> {
        let units = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).min(MOST_OF_LIST);
        if units == 0 {
            return None;
        }
        let share = {
            let mut shares = self.shares.lock();
            let share = shares.entry(namespace.into());
            Arc::clone(share.or_insert_with(|| Arc::new(Semaphore::new(MOST_OF_NAMESPACE))))
        };
        let mut place = ListPlace {
            room: self,
            namespace: namespace.into(),
            _share: None,
            _all: None,
        };
        // Neither is ever closed.
        place._share = share.acquire_many_owned(units).await.ok();
        place._all = self.all.acquire_many(units).await.ok();
        Some(place)
    }
}

impl Drop for ListPlace<'_> {
    fn drop(&mut self) {
        self._share = None;
        let mut shares = self.room.shares.lock();
        // The map's own is the last one.
        if shares
            .get(&self.namespace)
            .is_some_and(|own| Arc::strong_count(own) == 1)
        {
            shares.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn lists_of_one_namespace_leave_room_to_others() {
        const MIB: usize = 1 << 20;
        let room = ListRoom::default();
        let enter = |namespace, bytes| room.enter(namespace, bytes).now_or_never();
        let held = enter("greedy", 200 * MIB).unwrap();
        assert!(held.is_some(), "as much as one list may have");
        let waits: Vec<_> = (0..100)
            .map(|_| Box::pin(room.enter("greedy", 16 * MIB)))
            .collect();
        let waits: Vec<_> = waits
            .into_iter()
            .map(|mut wait| {
                assert!(wait.as_mut().now_or_never().is_none());
                wait
            })
            .collect();
        assert!(
            enter("greedy", MIB - 1).unwrap().is_none(),
            "a small list needs none"
        );
        let other = enter("other", 10 * MIB).unwrap();
        assert!(other.is_some());
        drop((waits, other));
        assert_eq!(room.shares.lock().len(), 1);
        drop(held);
        assert_eq!(
            (room.shares.lock().len(), room.all.available_permits()),
            (0, LIST_ROOM)
        );
    }
}
