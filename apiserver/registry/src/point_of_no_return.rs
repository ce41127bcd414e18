//! The moment from which on a request is carried out whatever becomes of its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const BEFORE: u8 = 0;
const PASSED: u8 = 1;
const ABANDONED: u8 = 2;

/// Point of no return of a request: its first write. Until then it may be abandoned, from then on it is carried out. All
/// clones are of the same request.
#[derive(Debug, Clone, Default)]
pub struct PointOfNoReturn(Arc<AtomicU8>);

impl PointOfNoReturn {
    /// Passes the point, before a write; `false` where the request has been abandoned, and nothing may be written.
    pub fn pass(&self) -> bool {
        self.settle(PASSED)
    }

    /// Abandons the request; `false` where the point has been passed.
    pub fn abandon(&self) -> bool {
        self.settle(ABANDONED)
    }

    /// The first who settles it is the one that counts.
    fn settle(&self, end: u8) -> bool {
        let settled = self
            .0
            .compare_exchange(BEFORE, end, Ordering::AcqRel, Ordering::Acquire);
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
        assert!(request.abandon() && request.clone().abandon() && !request.pass());
    }
}
