//! Completion of requests, whatever became of their clients.
//!
//! Metrics and the audit event of a request are recorded when the last holder of its [`Completion`] drops it: the
//! filters hold one, so does a mutation that goes on without its client, and the body of an answer that is a stream.
//! A connection that breaks drops the filters' futures, and so records as well.

use crate::exchange::RequestExchange;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completion(Arc<Inner>);

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered(u16),
    Panicked,
    /// Its client went before there was an answer.
    Abandoned,
}

impl Outcome {
    /// The status code it is counted under; a client that went has nginx's.
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::Answered(code) => code,
            Self::Panicked => 500,
            Self::Abandoned => 499,
        }
    }
}

type Observer = Box<dyn FnOnce(Outcome) + Send>;

#[derive(Default)]
struct Inner {
    outcome: Mutex<Option<Outcome>>,
    /// Monotonic time at which it came.
    begun: Duration,
    /// Nanoseconds it waited for seats.
    queued: Arc<AtomicU64>,
    observers: Mutex<Vec<Observer>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Completion {
    /// The completion of a request on its way.
    pub(crate) fn of(exchange: &RequestExchange) -> Option<Self> {
        exchange.request.extensions().get::<Self>().cloned()
    }

    pub(crate) fn begun(at: Duration) -> Self {
        Self(Arc::new(Inner {
            outcome: Mutex::default(),
            begun: at,
            queued: Arc::default(),
            observers: Mutex::default(),
        }))
    }

    pub(crate) fn begun_at(&self) -> Duration {
        self.0.begun
    }

    /// Nanoseconds it waited for seats, as they are counted.
    pub(crate) fn queued(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.queued)
    }

    /// Calls this once the request has ended.
    pub(crate) fn observe(&self, observer: impl FnOnce(Outcome) + Send + 'static) {
        self.0.observers.lock().push(Box::new(observer));
    }

    /// The first outcome is the one that counts: it is what the client received.
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.0.outcome.lock().get_or_insert(outcome);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let unsaid = if std::thread::panicking() {
            Outcome::Panicked
        } else {
            Outcome::Abandoned
        };
        let outcome = self.outcome.get_mut().unwrap_or(unsaid);
        for observer in self.observers.get_mut().drain(..) {
            observer(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome_of(end: impl FnOnce(Completion) + std::panic::UnwindSafe) -> Outcome {
        let seen = Arc::new(Mutex::new(None));
        let completion = Completion::default();
        let noted = Arc::clone(&seen);
        completion.observe(move |outcome| *noted.lock() = Some(outcome));
        let completion = std::panic::AssertUnwindSafe(completion);
        let _ = std::panic::catch_unwind(move || {
            let completion = completion;
            end(completion.0);
        });
        let seen = *seen.lock();
        seen.unwrap()
    }

    #[test]
    fn completion_is_recorded_whatever_happens() {
        assert_eq!(outcome_of(drop), Outcome::Abandoned);
        assert_eq!(outcome_of(|_held| panic!("on purpose")), Outcome::Panicked);
        let answered = |completion: Completion| {
            completion.ended(Outcome::Answered(504));
            completion.clone().ended(Outcome::Answered(201));
        };
        assert_eq!(outcome_of(answered), Outcome::Answered(504));
    }
}
