//! A value to wait on. (tokio's own `watch` wakes waiting tasks in an order that no seed decides.)

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    pub(crate) fn get(&self) -> T {
        *self.value.lock()
    }

    pub(crate) fn set(&self, value: T) {
        *self.value.lock() = value;
        self.changed.notify_waiters();
    }

    /// Waits for a value of which this is true.
    pub(crate) async fn until(&self, holds: impl Fn(T) -> bool) {
        loop {
            // Before the look, so that no change in between is missed.
            let changed = self.changed.notified();
            if holds(self.get()) {
                return;
            }
            changed.await;
        }
    }
}
