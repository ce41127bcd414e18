//! Calls of webhooks that authenticate and authorize: a POST of a review to the server of a kubeconfig, and the review that it
//! answers with.
//!
//! Reviews of credentials that nothing is known of have turns and places of their own, so that strangers take none of those of users.
//! A call that fails for a moment is made again, as upstream does: with pauses that grow, five times at most. Bounded: calls under way
//! and those that wait for one, the bytes of an answer, the time in line and that of all calls. Waiting is a matter of
//! others' reviews and no failure of the webhook. Neither what is sent nor what is answered is logged.

mod flows;
mod kubeconfig;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use flows::share_of;
pub use flows::{ReviewFlow, share_in};
pub use kubeconfig::{KubeconfigError, webhook_credentials, webhook_remote};

use apiserver_egress::Bytes;
use apiserver_egress::{CallGate, Dialer, Remote, RemoteAnswer, RemoteError, TurnedAway, answer_message};
use flows::Waiting;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use http::header::RETRY_AFTER;
use serde_json::Value;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

/// Time of one call where nothing else is configured; upstream's.
pub const REVIEW_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time of a review with all its calls and pauses, without that in line; upstream's.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a review waits for the turns of all its calls.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls in all for one review.
const STEPS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
/// Calls at once about credentials that nothing is known of.
const MAX_ANONYMOUS_CALLS: usize = 64;
/// Bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;

/// A review without an answer that counts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewCallError {
    #[error("too many requests wait for the webhook")]
    Busy,
    /// No call was under way when nothing waited for the answer any more.
    #[error("no request waits for the review any more")]
    Abandoned,
    #[error("{0}")]
    Remote(#[from] RemoteError),
    #[error("Post {url:?}: context deadline exceeded")]
    TimedOut { url: String },
    /// Another answer than a review.
    #[error("{message}")]
    Answered { code: u16, message: String },
}

/// See the module.
#[derive(Debug)]
pub struct ReviewWebhook {
    remote: Remote,
    dialer: Dialer,
    timeout: Duration,
    first_pause: Duration,
    of_users: Turns,
    anonymous: Turns,
    turned_away: TurnedAway,
}

/// Turns and places of reviews.
#[derive(Debug)]
struct Turns {
    calls: CallGate,
    waiting: Waiting,
}

impl Turns {
    fn new(calls: CallGate) -> Self {
        Self {
            calls,
            waiting: Waiting::default(),
        }
    }
}

/// Ends when nothing waits for the answer any more.
type Abandoned<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// The answer of one call, and whether another may come to something else.
type Called = (Result<Vec<u8>, ReviewCallError>, bool);

/// One call, for metrics: the code of its answer, or none.
#[derive(Debug, Clone, Copy)]
pub struct CallMade {
    pub code: Option<u16>,
    pub timed_out: bool,
    pub took: Duration,
}

impl CallMade {
    fn of(answer: &Result<Vec<u8>, ReviewCallError>, took: Duration) -> Self {
        Self {
            code: match answer {
                Ok(_) => Some(200),
                Err(ReviewCallError::Answered { code, .. }) => Some(*code),
                Err(_) => None,
            },
            timed_out: matches!(answer, Err(ReviewCallError::TimedOut { .. })),
            took,
        }
    }
}

impl ReviewWebhook {
    /// The webhook of a kubeconfig's current context.
    ///
    /// # Errors
    /// See [`KubeconfigError`].
    pub fn open(kubeconfig: &Path, dialer: Dialer, timeout: Duration) -> Result<Self, KubeconfigError> {
        Ok(Self {
            remote: webhook_remote(kubeconfig, timeout)?,
            turned_away: TurnedAway::new(dialer.runtime()),
            dialer,
            timeout,
            first_pause: FIRST_PAUSE,
            of_users: Turns::new(CallGate::new()),
            anonymous: Turns::new(CallGate::of(MAX_ANONYMOUS_CALLS)),
        })
    }

    /// The webhook with another pause before a call that failed is made again.
    #[must_use]
    pub fn with_first_pause(mut self, pause: Duration) -> Self {
        self.first_pause = pause;
        self
    }

    fn turns_of(&self, flow: ReviewFlow<'_>) -> &Turns {
        match flow.is_anonymous {
            true => &self.anonymous,
            false => &self.of_users,
        }
    }

    /// The answered review of this kind. Reviews of one flow have a share of the calls. One that is abandoned makes no other call,
    /// and a call that has begun ends: turns are a bound of what the webhook works on, which it may not know to be without a reader.
    ///
    /// # Errors
    /// See [`ReviewCallError`].
    pub async fn review(
        &self,
        kind: &str,
        review: &Value,
        flow: ReviewFlow<'_>,
        made: &(dyn Fn(CallMade) + Send + Sync),
        abandoned: impl Future<Output = ()> + Send,
    ) -> Result<Value, ReviewCallError> {
        let answered = self.answered(review, flow, made, pin!(abandoned)).await;
        if matches!(answered, Err(ReviewCallError::Busy)) {
            self.turned_away.note(kind);
        }
        self.read(kind, &answered?)
    }

    async fn answered(
        &self,
        review: &Value,
        flow: ReviewFlow<'_>,
        made: &(dyn Fn(CallMade) + Send + Sync),
        abandoned: Abandoned<'_>,
    ) -> Result<Vec<u8>, ReviewCallError> {
        let body = Bytes::from(review.to_string());
        let place = self.turns_of(flow).waiting.enter(flow.name, body.len());
        let _place = place.ok_or(ReviewCallError::Busy)?;
        let call = || self.call(body.clone()).boxed();
        self.called(flow, &call, made, abandoned).await
    }

    /// Makes the calls of a review, each in its turn: one that pauses leaves its turn to others.
    async fn called<'c>(
        &self,
        flow: ReviewFlow<'_>,
        call: &(dyn Fn() -> BoxFuture<'c, Called> + Send + Sync),
        made: &(dyn Fn(CallMade) + Send + Sync),
        mut abandoned: Abandoned<'_>,
    ) -> Result<Vec<u8>, ReviewCallError> {
        let runtime = self.dialer.runtime();
        let (mut in_line, mut time) = (LINE_TIMEOUT, REVIEW_TIMEOUT);
        let (mut pause, mut failed) = (self.first_pause, ReviewCallError::Busy);
        for left in (0..STEPS).rev() {
            if time.is_zero() {
                break;
            }
            let arrived = runtime.monotonic();
            let entering = runtime.timeout(in_line, self.turns_of(flow).calls.enter(flow.name, 0));
            let entering = unless(abandoned.as_mut(), entering).await?;
            let turn = entering.map_err(|_| ReviewCallError::Busy)?;
            let begun = runtime.monotonic();
            in_line = in_line.saturating_sub(begun.saturating_sub(arrived));
            let calling = runtime.timeout(time, call()).await;
            drop(turn);
            let (answer, is_for_a_moment) = calling.unwrap_or_else(|_| (Err(self.timed_out()), false));
            made(CallMade::of(&answer, runtime.monotonic().saturating_sub(begun)));
            match answer {
                Ok(text) => return Ok(text),
                Err(error) if left == 0 || !is_for_a_moment => return Err(error),
                Err(error) => failed = error,
            }
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            let share = runtime.random_u64() as f64 / u64::MAX as f64;
            let pausing = runtime.sleep(pause.mul_f64(1.0 + JITTER * share).min(time));
            unless(abandoned.as_mut(), pausing).await?;
            time = time.saturating_sub(runtime.monotonic().saturating_sub(begun));
            pause = pause.mul_f64(FACTOR);
        }
        Err(failed)
    }

    fn timed_out(&self) -> ReviewCallError {
        let url = self.remote.url();
        ReviewCallError::TimedOut { url }
    }

    /// One call.
    async fn call(&self, body: Bytes) -> Called {
        let calling = self.remote.post(&self.dialer, body, MAX_ANSWER);
        let answer = self.dialer.runtime().timeout(self.timeout, calling).await;
        let answer = match answer {
            Err(_) => return (Err(self.timed_out()), false),
            Ok(Err(error)) => {
                let was_reset = error.to_string().contains("reset by peer");
                return (Err(error.into()), was_reset);
            }
            Ok(Ok(answer)) => answer,
        };
        let RemoteAnswer { code, headers, body } = answer;
        if (200..=206).contains(&code) {
            return (Ok(body), false);
        }
        let is_for_a_moment = matches!(code, 429 | 500 | 504) || headers.contains_key(RETRY_AFTER);
        let message = answer_message(code, &body);
        (Err(ReviewCallError::Answered { code, message }), is_for_a_moment)
    }

    fn read(&self, kind: &str, text: &[u8]) -> Result<Value, ReviewCallError> {
        let unreadable = |why: &str| ReviewCallError::Answered {
            code: 200,
            message: format!("the answer of {} is no {kind}: {why}", self.remote.url()),
        };
        let review: Value = serde_json::from_slice(text).map_err(|error| unreadable(&error.to_string()))?;
        match review.get("kind").map(Value::as_str) {
            None if review.is_object() => Ok(review),
            Some(Some(own)) if own == kind => Ok(review),
            _ => Err(unreadable("it has another kind")),
        }
    }
}

/// A future's output, which comes first, or the end of the review.
async fn unless<T>(abandoned: Abandoned<'_>, own: impl Future<Output = T>) -> Result<T, ReviewCallError> {
    match select(pin!(own), abandoned).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(_) => Err(ReviewCallError::Abandoned),
    }
}
