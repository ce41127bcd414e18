//! A value that others wait for.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A value that changes, and tasks that wait until it is as they want it.
///
/// They go on in the order in which they came. `tokio::sync::watch` wakes them in an order of its own chance, which
/// no seed decides.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Watched<T> {
    /// A value without waiting readers.
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    /// Replaces the value; returns the one before.
    pub fn replace(&self, value: T) -> T {
        let before = std::mem::replace(&mut *self.value.lock(), value);
        self.changed.notify_waiters();
        before
    }

    /// Changes the value in its place; waiting tasks are woken where `change` returns true.
    pub fn change(&self, change: impl FnOnce(&mut T) -> bool) {
        if change(&mut self.value.lock()) {
            self.changed.notify_waiters();
        }
    }
}

impl<T: Clone> Watched<T> {
    /// Returns the value of this moment.
    pub fn get(&self) -> T {
        self.value.lock().clone()
    }

    /// Waits until `is_so` returns true of the value, and returns it.
    pub async fn wait_for(&self, mut is_so: impl FnMut(&T) -> bool) -> T {
        loop {
            // From here on a change is noticed, also before the first poll.
            let changed = self.changed.notified();
            if let Some(value) = Some(self.get()).filter(&mut is_so) {
                return value;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use futures::stream::FuturesUnordered;

    #[tokio::test]
    async fn waiters_of_a_watched_value_go_on_in_their_order() {
        let value = Watched::new(0);
        let waits = |number| {
            let value = &value;
            async move { (number, value.wait_for(|value| *value > 1).await) }
        };
        // They are polled in the order in which they are woken.
        let mut waiting: FuturesUnordered<_> = (0..100).map(waits).collect();
        assert!(futures::poll!(waiting.next()).is_pending());
        assert_eq!(value.replace(1), 0);
        assert!(futures::poll!(waiting.next()).is_pending());
        value.change(|value| {
            *value = 3;
            false
        });
        assert!(futures::poll!(waiting.next()).is_pending(), "no waiter was woken");
        value.replace(2);
        let order: Vec<_> = waiting.collect().await;
        assert_eq!(order, (0..100).map(|number| (number, 2)).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn watched_value_already_met_returns_at_once() {
        assert_eq!(Watched::new("so").wait_for(|value| *value == "so").await, "so");
    }
}
