//! The moment from which on a request is carried out whatever becomes of its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use tokio::sync::Notify;

const BEFORE: u8 = 0;
const PASSED: u8 = 1;
const ABANDONED: u8 = 2;

/// Point of no return of a request: its first write. Until then it may be abandoned, from then on it is carried out. All
/// clones are of the same request.
#[derive(Debug, Clone, Default)]
pub struct PointOfNoReturn(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: AtomicU8,
    has_left: AtomicBool,
    left: Notify,
}

impl PointOfNoReturn {
    /// Passes the point, before a write; `false` where the request has been abandoned, and nothing may be written.
    pub fn pass(&self) -> bool {
        self.settle(PASSED)
    }

    /// Abandons the request, whose client has left; `false` where the point has been passed.
    pub fn abandon(&self) -> bool {
        let is_abandoned = self.settle(ABANDONED);
        self.0.has_left.store(true, Ordering::Release);
        self.0.left.notify_waiters();
        is_abandoned
    }

    /// Reports whether the request has been abandoned.
    pub fn is_abandoned(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == ABANDONED
    }

    /// Ends once the client has left, before the point or after it.
    pub async fn client_left(&self) {
        let mut left = std::pin::pin!(self.0.left.notified());
        left.as_mut().enable();
        if !self.0.has_left.load(Ordering::Acquire) {
            left.await;
        }
    }

    /// The first call decides.
    fn settle(&self, end: u8) -> bool {
        let state = &self.0.state;
        let settled = state.compare_exchange(BEFORE, end, Ordering::AcqRel, Ordering::Acquire);
        settled.is_ok() || settled == Err(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_of_no_return_is_passed_or_the_request_abandoned() {
        let request = PointOfNoReturn::default();
        assert!(request.pass() && request.clone().pass() && !request.abandon());
        let request = PointOfNoReturn::default();
        assert!(!request.is_abandoned());
        assert!(request.abandon() && request.clone().abandon() && !request.pass());
        assert!(request.is_abandoned());
    }

    #[tokio::test]
    async fn point_of_no_return_that_is_passed_tells_of_a_client_that_leaves() {
        let request = PointOfNoReturn::default();
        assert!(request.pass());
        let mut left = std::pin::pin!(request.client_left());
        assert!(futures::poll!(left.as_mut()).is_pending());
        assert!(!request.clone().abandon());
        assert!(futures::poll!(left).is_ready());
        assert!(futures::poll!(std::pin::pin!(request.client_left())).is_ready());
    }
}
