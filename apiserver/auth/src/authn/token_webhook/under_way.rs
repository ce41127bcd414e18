//! Reviews under way: one of a token, however many requests wait for it, and the number of these.

use super::Verdict;
use super::memory::Digest;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// A review, which several requests wait for.
pub(super) type Reviewing = Shared<BoxFuture<'static, Verdict>>;

/// See the module.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<Digest, (Reviewing, Arc<Waiters>)>>);

/// Requests that wait for one review.
#[derive(Default)]
pub(super) struct Waiters {
    /// Grows below the lock of [`UnderWay`] only.
    count: AtomicUsize,
    all_left: Notify,
}

/// A request that waits for a review.
pub(super) struct Waiter(Arc<Waiters>);

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.all_left.notify_one();
        }
    }
}

impl UnderWay {
    /// The review of a token, for another request; `begin` is called where there is none.
    pub(super) fn join(
        &self,
        digest: Digest,
        begin: impl FnOnce(Arc<Waiters>) -> Reviewing,
    ) -> (Waiter, Reviewing) {
        let mut all = self.0.lock();
        let (reviewing, waiters) = all.entry(digest).or_insert_with(|| {
            let waiters = Arc::<Waiters>::default();
            (begin(Arc::clone(&waiters)), waiters)
        });
        // Still under the lock: `abandoned` reads the count under it, and must not remove a review that has
        // just been joined.
        waiters.count.fetch_add(1, Ordering::AcqRel);
        (Waiter(Arc::clone(waiters)), reviewing.clone())
    }

    /// Ends when no request waits any more; the review is no longer under way then.
    pub(super) async fn abandoned(&self, digest: &Digest, waiters: &Waiters) {
        loop {
            waiters.all_left.notified().await;
            let mut all = self.0.lock();
            if waiters.count.load(Ordering::Acquire) == 0 {
                all.remove(digest);
                return;
            }
        }
    }

    /// The review has its answer.
    pub(super) fn end(&self, digest: &Digest) {
        self.0.lock().remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, poll};
    use std::pin::pin;

    const DIGEST: Digest = [7; 32];

    fn reviewing() -> Reviewing {
        std::future::pending().boxed().shared()
    }

    #[tokio::test]
    async fn review_is_abandoned_when_the_last_request_leaves() {
        let all = UnderWay::default();
        let (first, _) = all.join(DIGEST, |_| reviewing());
        let (second, _) = all.join(DIGEST, |_| panic!("one is under way"));
        let waiters = Arc::clone(&first.0);
        let mut abandoned = pin!(all.abandoned(&DIGEST, &waiters));
        drop(first);
        assert!(poll!(&mut abandoned).is_pending(), "one waits still");
        drop(second);
        let (third, _) = all.join(DIGEST, |_| panic!("it goes on for one that comes in time"));
        assert!(poll!(&mut abandoned).is_pending());
        drop(third);
        assert!(poll!(&mut abandoned).is_ready());
        let (_, own) = all.join(DIGEST, |_| reviewing());
        assert!(own.peek().is_none(), "the next request has a review of its own");
        assert_eq!(all.0.lock().len(), 1);
    }
}
