//! Calls of webhooks that authenticate and authorize: a POST of a review to the server of a kubeconfig, and the review that it
//! answers with.
//!
//! Reviews of credentials that nothing is known of have turns and places of their own, so that strangers take none of those of users.
//! A call that fails for a moment is made again, as upstream does: with pauses that grow, five times at most. Bounded: calls under way
//! and those that wait for one, the bytes of an answer, the time in line and that of all calls. Waiting is a matter of
//! others' reviews and no failure of the webhook. Neither what is sent nor what is answered is logged.

mod kubeconfig;

pub use kubeconfig::KubeconfigError;

use apiserver_egress::Bytes;
use apiserver_egress::{CallGate, Dialer, Remote, RemoteAnswer, RemoteError, TurnedAway, answer_message};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use http::header::RETRY_AFTER;
use machinery_schema::leaf;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
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
/// Places of reviews under way, with those that wait for their turn; and of one flow, which has no more than it leaves free.
const MAX_WAITING: usize = 1_024;
const MAX_WAITING_OF_FLOW: usize = 128;
/// Bytes of a review for which it takes another place, and the most places of one: four of the largest are under way for a flow.
const BYTES_OF_PLACE: usize = 8 << 10;
const MAX_PLACES: usize = MAX_WAITING_OF_FLOW / 4;
/// Calls at once about credentials that nothing is known of.
const MAX_CALLS_OF_STRANGERS: usize = 64;
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
    of_users: Turns,
    of_strangers: Turns,
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

/// Reviews that have a share together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewFlow<'a> {
    name: &'a str,
    is_stranger: bool,
}

impl<'a> ReviewFlow<'a> {
    /// Reviews that a user causes who is known.
    pub fn of_user(name: &'a str) -> Self {
        Self {
            name,
            is_stranger: false,
        }
    }

    /// Reviews of credentials that nothing is known of, by the client that shows them.
    pub fn of_stranger(client: &'a str) -> Self {
        Self {
            name: client,
            is_stranger: true,
        }
    }
}

/// The namespace of the accounts that the control plane runs as.
pub(crate) const SYSTEM: &str = "kube-system";

/// The user, or all service accounts of a namespace: a tenant that may make one of them makes a thousand.
pub(crate) fn share_of(user: &str) -> &str {
    let account = user.strip_prefix("system:serviceaccount:");
    match account.and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) if namespace != SYSTEM => &user[..user.len() - name.len() - 1],
        _ => user,
    }
}

/// Places of reviews under way, by flow.
#[derive(Debug, Default)]
struct Waiting(Mutex<HashMap<String, usize>>);

/// Places of one review.
struct Place<'a> {
    waiting: &'a Waiting,
    flow: &'a str,
    places: usize,
}

impl Waiting {
    /// The places of a review with so many bytes; `None` where there are not so many, or not for the flow.
    fn enter<'a>(&'a self, flow: &'a str, bytes: usize) -> Option<Place<'a>> {
        let places = (1 + bytes / BYTES_OF_PLACE).min(MAX_PLACES);
        let mut all = self.0.lock();
        let own = all.get(flow).copied().unwrap_or_default();
        let free = MAX_WAITING.saturating_sub(all.values().sum());
        if own + places > MAX_WAITING_OF_FLOW.min(free) {
            return None;
        }
        all.insert(flow.to_owned(), own + places);
        Some(Place {
            waiting: self,
            flow,
            places,
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.waiting.0.lock();
        match all.get_mut(self.flow) {
            Some(own) if *own > self.places => *own -= self.places,
            _ => drop(all.remove(self.flow)),
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
        let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        // As client-go has it in the URL.
        let query = format!("timeout={}", leaf::write_duration(nanos));
        let remote = kubeconfig::remote(kubeconfig, &query)?;
        Ok(Self {
            remote,
            turned_away: TurnedAway::new(dialer.runtime()),
            dialer,
            timeout,
            of_users: Turns::new(CallGate::new()),
            of_strangers: Turns::new(CallGate::of(MAX_CALLS_OF_STRANGERS)),
        })
    }

    fn turns_of(&self, flow: ReviewFlow<'_>) -> &Turns {
        match flow.is_stranger {
            true => &self.of_strangers,
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
        let (mut pause, mut failed) = (FIRST_PAUSE, ReviewCallError::Busy);
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use apiserver_egress::{HookPlace, OwnAddresses};
    use futures::future::pending;
    use machinery_runtime::{Runtime, Simulation};
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    const OWN: ReviewFlow<'_> = ReviewFlow {
        name: "own",
        is_stranger: false,
    };

    #[test]
    fn reviews_of_one_flow_leave_places_to_others() {
        let waiting = Waiting::default();
        let enter = |flow: &'static str| waiting.enter(flow, 0);
        let mut held: Vec<_> = (0..MAX_WAITING_OF_FLOW).map(|_| enter("a").unwrap()).collect();
        assert!(enter("a").is_none());
        assert!(enter("b").is_some());
        held.pop();
        assert!(enter("a").is_some());
        drop(held);
        assert!(waiting.0.lock().is_empty());
    }

    #[test]
    fn reviews_take_places_for_their_bytes() {
        let waiting = Waiting::default();
        let of_a_place = waiting.enter("a", 0).unwrap();
        let of_two = waiting.enter("a", BYTES_OF_PLACE).unwrap();
        assert_eq!(waiting.0.lock()["a"], 3);
        drop((of_a_place, of_two));
        let large: Vec<_> = std::iter::from_fn(|| waiting.enter("a", 1 << 30)).collect();
        assert_eq!(large.len(), 4, "the largest have places");
        assert!(waiting.enter("a", 0).is_none());
        drop(large);
        assert!(waiting.0.lock().is_empty());
    }

    #[test]
    fn service_accounts_of_a_namespace_share() {
        let check = |user: &str, expected: &str| assert_eq!(share_of(user), expected);
        check("system:serviceaccount:blue:a", "system:serviceaccount:blue");
        check(
            "system:serviceaccount:kube-system:a",
            "system:serviceaccount:kube-system:a",
        );
        check("anna", "anna");
    }

    /// Others' calls are no failure of the webhook, which could let a question pass to the next authorizer.
    #[test]
    fn review_that_has_no_turn_in_time_is_busy() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let webhook = webhook(&runtime);
            let _others = all_turns(&webhook, &runtime).await;
            let begun = runtime.monotonic();
            let answer = webhook
                .review("TokenReview", &Value::Null, OWN, &|_| {}, pending())
                .await;
            assert_eq!(answer, Err(ReviewCallError::Busy));
            assert_eq!(runtime.monotonic() - begun, LINE_TIMEOUT);
            let counted = "knarr_webhook_calls_turned_away_total{review=\"TokenReview\"} 1";
            assert!(runtime.metrics().text().contains(counted));
        });
    }

    #[test]
    fn reviews_of_strangers_leave_turns_to_users() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let webhook = webhook(&runtime);
            let clients: Vec<String> = (0..1_000).map(|client| client.to_string()).collect();
            let mut held = Vec::new();
            for client in &clients {
                let entering = webhook.of_strangers.calls.enter(client, 0);
                held.extend(runtime.timeout(Duration::from_millis(1), entering).await);
            }
            assert_eq!(held.len(), MAX_CALLS_OF_STRANGERS, "they have no more turns");
            let begun = runtime.monotonic();
            let call = || std::future::ready((Ok(Vec::new()), false)).boxed();
            assert_eq!(
                webhook.called(OWN, &call, &|_| {}, pin!(pending::<()>())).await,
                Ok(Vec::new())
            );
            assert_eq!(runtime.monotonic(), begun, "it waited for nobody");
        });
    }

    /// The call of this one fails for a moment, again and again.
    #[test]
    fn reviews_that_pause_leave_their_turns_to_others() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let webhook = webhook(&runtime);
            let mut others = all_turns(&webhook, &runtime).await;
            others.pop();
            let failed = ReviewCallError::Answered {
                code: 500,
                message: String::new(),
            };
            let (begun, calls) = (runtime.monotonic(), AtomicUsize::new(0));
            let fail = || {
                calls.fetch_add(1, Ordering::Relaxed);
                std::future::ready((Err(failed.clone()), true)).boxed()
            };
            let waits = pin!(pending::<()>());
            let failing = webhook.called(OWN, &fail, &|_| {}, waits);
            let quick = async {
                let call = || std::future::ready((Ok(Vec::new()), false)).boxed();
                let answer = webhook.called(OWN, &call, &|_| {}, pin!(pending::<()>())).await;
                (answer, runtime.monotonic())
            };
            let (failing, (quick, at)) = futures::join!(failing, quick);
            assert_eq!(
                (quick, at),
                (Ok(Vec::new()), begun),
                "it had its turn in the pause"
            );
            assert_eq!(failing, Err(failed));
            assert_eq!(calls.load(Ordering::Relaxed), 5);
        });
    }

    /// Its places are others' at once; a call that has begun ends, and what fails then is not called again.
    #[test]
    fn abandoned_review_makes_no_other_call() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let webhook = webhook(&runtime);
            let others = all_turns(&webhook, &runtime).await;
            let begun = runtime.monotonic();
            let leaves = runtime.sleep(Duration::from_secs(1));
            let answer = webhook
                .review("TokenReview", &Value::Null, OWN, &|_| {}, leaves)
                .await;
            assert_eq!(answer, Err(ReviewCallError::Abandoned), "in the line");
            assert_eq!(runtime.monotonic() - begun, Duration::from_secs(1));
            assert_eq!(places(&webhook, OWN), 0);
            drop(others);
            let (calls, left) = (AtomicUsize::new(0), Notify::new());
            let fail = || {
                calls.fetch_add(1, Ordering::Relaxed);
                left.notify_one();
                let late = runtime.sleep(Duration::from_secs(3));
                late.map(|()| (Err(ReviewCallError::Busy), true)).boxed()
            };
            let begun = runtime.monotonic();
            let answer = webhook.called(OWN, &fail, &|_| {}, pin!(left.notified())).await;
            assert_eq!(answer, Err(ReviewCallError::Abandoned), "in the pause");
            assert_eq!(runtime.monotonic() - begun, Duration::from_secs(3));
            assert_eq!(calls.load(Ordering::Relaxed), 1);
        });
    }

    /// Turns of others, until the webhook has none left.
    async fn all_turns<'a>(webhook: &'a ReviewWebhook, runtime: &Runtime) -> Vec<HookPlace<'a>> {
        turns(webhook, OWN, runtime).await
    }

    /// Turns of this flow, until it gets no more.
    pub(crate) async fn turns<'a>(
        webhook: &'a ReviewWebhook,
        flow: ReviewFlow<'a>,
        runtime: &Runtime,
    ) -> Vec<HookPlace<'a>> {
        let mut turns = Vec::new();
        let calls = &webhook.turns_of(flow).calls;
        let turn = || runtime.timeout(Duration::from_millis(1), calls.enter(flow.name, 0));
        while let Ok(turn) = turn().await {
            turns.push(turn);
        }
        turns
    }

    /// Places that this flow has.
    pub(crate) fn places(webhook: &ReviewWebhook, flow: ReviewFlow<'_>) -> usize {
        let waiting = webhook.turns_of(flow).waiting.0.lock();
        waiting.get(flow.name).copied().unwrap_or_default()
    }

    pub(crate) fn webhook(runtime: &Runtime) -> ReviewWebhook {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let text = r#"{"clusters": [{"name": "a", "cluster": {"server": "https://hooks.example"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}"#;
        file.write_all(text.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let (tls, own) = (Arc::new(tls), OwnAddresses::default());
        let dialer = Dialer::new(Arc::clone(&tls), tls, own, runtime.clone());
        ReviewWebhook::open(file.path(), dialer, REVIEW_CALL_TIMEOUT).unwrap()
    }

    #[test]
    fn reviews_of_greedy_flows_leave_places_to_the_next() {
        let waiting = Waiting::default();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let greedy = |flow: &'static str| std::iter::from_fn(|| waiting.enter(flow, 0)).collect::<Vec<_>>();
        let held = names.map(greedy);
        assert_eq!(
            held.each_ref().map(Vec::len),
            [128, 128, 128, 128, 128, 128, 128, 64, 32]
        );
        assert!(waiting.enter("late", 0).is_some());
    }
}
