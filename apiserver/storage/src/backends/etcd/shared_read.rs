//! One request to etcd for all callers with the same question at the same time.

use crate::StorageError;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// The last answer. It serves every caller that came before its request was sent, so an answer is never older than the
/// question, and a thousand callers cost two requests.
#[derive(Debug)]
pub(super) struct SharedRead<T> {
    /// Requests sent so far.
    sent: AtomicU64,
    last: Mutex<(u64, Result<T, StorageError>)>,
}

impl<T: Copy + Default> Default for SharedRead<T> {
    fn default() -> Self {
        Self {
            sent: AtomicU64::new(0),
            last: Mutex::new((0, Ok(T::default()))),
        }
    }
}

impl<T: Copy> SharedRead<T> {
    pub(super) async fn read<F>(&self, request: impl FnOnce() -> F) -> Result<T, StorageError>
    where
        F: Future<Output = Result<T, StorageError>>,
    {
        let known = self.sent.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if last.0 > known {
            return last.1.clone();
        }
        let number = self.sent.fetch_add(1, Ordering::AcqRel) + 1;
        let answer = request().await;
        *last = (number, answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use machinery_runtime::{Runtime, Simulation};
    use std::time::Duration;

    async fn slowly(runtime: &Runtime, sent: &AtomicU64) -> Result<u64, StorageError> {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        runtime.sleep(Duration::from_millis(5)).await;
        Ok(number)
    }

    #[test]
    fn shared_read_serves_waiters_with_one_request_each_round() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (shared, sent) = (SharedRead::default(), AtomicU64::new(0));
            let first = shared.read(|| slowly(&runtime, &sent));
            let rest = async {
                // The first request is under way: its answer may be older than what these ask.
                runtime.sleep(Duration::from_millis(1)).await;
                let many = (0..1000).map(|_| shared.read(|| slowly(&runtime, &sent)));
                join_all(many).await
            };
            let (first, rest) = futures::join!(first, rest);
            assert_eq!(first.unwrap(), 0);
            assert!(rest.into_iter().all(|answer| answer.unwrap() == 1));
            assert_eq!(sent.load(Ordering::Relaxed), 2);
        });
    }

    #[test]
    fn request_of_a_caller_that_goes_away_is_sent_again() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let (shared, sent) = (SharedRead::default(), AtomicU64::new(0));
            let gone = shared.read(|| slowly(&runtime, &sent));
            assert!(runtime.timeout(Duration::from_millis(1), gone).await.is_err());
            assert_eq!(shared.read(|| slowly(&runtime, &sent)).await.unwrap(), 1);
        });
    }
}
