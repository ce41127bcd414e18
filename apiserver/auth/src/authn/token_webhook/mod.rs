//! Tokens that a webhook knows (`--authentication-token-webhook-config-file`): TokenReviews to another server, after all other authenticators.
//!
//! One review of a token is under way however many requests come with it. When all of them have left, a call that has begun ends,
//! and its answer counts; a review that waits for its turn ends at once ([`under_way`]). Users and refusals are remembered for the
//! time of the flag, failures are not. Neither tokens nor reviews are kept: memory is by digest, and bounded.
//!
//! A token that was good a while ago is reviewed in the share of its user, any other one in that of the client that shows it, and
//! all of those together leave turns to the former: a webhook that is slow with invented tokens is none for users.

mod memory;
#[cfg(test)]
mod tests;
mod under_way;

use super::token::{ShownToken, TokenAuthenticator};
use super::{Authenticated, AuthnFuture, Outcome, Refusal};
use crate::review_webhook::{ReviewCallError, ReviewFlow, ReviewWebhook};
use futures::FutureExt;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_x509::KnownTokens;
use memory::{Digest, Memory};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use under_way::{UnderWay, Waiters};

/// Groups and extra values of a user, and bytes of all.
const MAX_USER_TEXTS: usize = 4_096;
const MAX_USER_BYTES: usize = 128 << 10;
/// Characters that are shown of an error.
const MAX_SHOWN: usize = 1_024;

/// The version of TokenReview that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenReviewVersion {
    V1,
    V1Beta1,
}

impl TokenReviewVersion {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// The result of a review.
#[derive(Debug, Clone)]
enum Verdict {
    User(Authenticated),
    /// Not a token of the webhook.
    Unknown,
    Failed(Arc<str>),
    /// The webhook was not called: too many reviews are in progress.
    Busy,
}

/// See the module.
#[derive(Clone)]
pub struct TokenWebhook(Arc<Inner>);

struct Inner {
    webhook: ReviewWebhook,
    version: TokenReviewVersion,
    /// Audiences of answers that name none.
    implicit: Vec<String>,
    runtime: Runtime,
    memory: Mutex<Memory>,
    known: KnownTokens<Digest>,
    under_way: UnderWay,
}

impl fmt::Debug for TokenWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenWebhook").finish_non_exhaustive()
    }
}

/// A token to ask the webhook about.
struct Question {
    digest: Digest,
    token: String,
    audiences: Vec<String>,
    client: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "crate::configuration::or_default")]
    authenticated: bool,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    user: User,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    audiences: Vec<String>,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    error: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    #[serde(deserialize_with = "crate::configuration::or_default")]
    username: String,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    uid: String,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    groups: Vec<String>,
    #[serde(deserialize_with = "crate::configuration::or_default")]
    extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Users are remembered, and each request goes through their groups.
    fn is_too_large(&self) -> bool {
        let extra = self
            .extra
            .iter()
            .flat_map(|(key, values)| std::iter::once(key).chain(values));
        let texts = self.groups.iter().chain(extra).chain([&self.username, &self.uid]);
        let (count, bytes) = texts.fold((0, 0), |(count, bytes), text| (count + 1, bytes + text.len()));
        count > MAX_USER_TEXTS || bytes > MAX_USER_BYTES
    }
}

impl TokenWebhook {
    /// `ttl` is the time for which answers are remembered; at 0 none is.
    pub fn new(
        webhook: ReviewWebhook,
        version: TokenReviewVersion,
        implicit: Vec<String>,
        ttl: Duration,
        runtime: Runtime,
    ) -> Self {
        Self(Arc::new(Inner {
            webhook,
            version,
            implicit,
            runtime,
            memory: Mutex::new(Memory::new(ttl)),
            known: KnownTokens::default(),
            under_way: UnderWay::default(),
        }))
    }

    async fn identify(&self, shown: ShownToken<'_>) -> Outcome {
        match self.verdict(shown).await {
            Verdict::User(found) => Outcome::User(found),
            Verdict::Unknown => Outcome::Pass,
            Verdict::Failed(why) => Outcome::Refused(Refusal::new(why.as_ref())),
            Verdict::Busy => Outcome::Refused(Refusal::unchecked("too many requests wait for the webhook")),
        }
    }

    async fn verdict(&self, shown: ShownToken<'_>) -> Verdict {
        let own = &self.0;
        let digest = memory::digest_of(shown.token, shown.audiences);
        if let Some(known) = own.memory.lock().get(&digest, own.runtime.monotonic()) {
            return known;
        }
        let (_waiter, verdict) = own.under_way.join(digest, |waiters| {
            let question = Question {
                digest,
                token: shown.token.to_owned(),
                audiences: shown.audiences.to_vec(),
                client: shown.client.to_owned(),
            };
            let inner = Arc::clone(own);
            let asking = async move { inner.ask(question, &waiters).await };
            let asking = asking.boxed().shared();
            // A task of its own drives the review: the request that began it may be dropped while others wait
            // for the same token.
            let driven = asking.clone().map(drop);
            own.runtime.spawn_request("token review", driven).detach();
            asking
        });
        verdict.await
    }
}

impl Inner {
    async fn ask(&self, question: Question, waiters: &Waiters) -> Verdict {
        let digest = question.digest;
        let known = self.known.user(&digest, self.runtime.monotonic());
        // A token that was good counts for its user, any other for the client's address: invalid tokens cannot
        // fill the queue of a user.
        let flow = match &known {
            Some(user) => ReviewFlow::of_user(user),
            None => ReviewFlow::of_anonymous(&question.client),
        };
        let abandoned = self.under_way.abandoned(&digest, waiters);
        let Some(verdict) = self.review(&question, flow, abandoned).await else {
            return Verdict::Busy;
        };
        let now = self.runtime.monotonic();
        match &verdict {
            Verdict::User(found) => self.known.put(digest, &found.user.name, now),
            Verdict::Unknown => self.known.forget(&digest),
            Verdict::Failed(_) | Verdict::Busy => {}
        }
        // Remembered before the review ends: a request in between finds one or the other, and calls nothing
        // twice.
        self.memory.lock().keep(digest, &verdict, now);
        self.under_way.end(&digest);
        verdict
    }

    /// None where no request waits any more, and the webhook was not called.
    async fn review(
        &self,
        question: &Question,
        flow: ReviewFlow<'_>,
        abandoned: impl Future<Output = ()> + Send,
    ) -> Option<Verdict> {
        let Question { token, audiences, .. } = question;
        let mut spec = json!({"token": token});
        if !audiences.is_empty() {
            spec["audiences"] = json!(audiences);
        }
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": self.version.api_version(),
            "metadata": {},
            "spec": spec,
            "status": {"user": {}},
        });
        let reviewing = self
            .webhook
            .review("TokenReview", &review, flow, &|_| {}, abandoned);
        Some(match reviewing.await {
            Ok(answer) => self.read(&answer, token, audiences),
            Err(ReviewCallError::Abandoned) => return None,
            Err(ReviewCallError::Busy) => Verdict::Busy,
            Err(error) => {
                // An answer may repeat the token.
                let why = match &error {
                    ReviewCallError::Answered { code, .. } => {
                        format!("the webhook answered with code {code}")
                    }
                    other => other.to_string(),
                };
                tracing::warn!(why, "failed to make webhook authenticator request");
                Verdict::Failed(why.into())
            }
        })
    }

    fn read(&self, answer: &Value, token: &str, audiences: &[String]) -> Verdict {
        let status = answer.get("status").unwrap_or(&Value::Null);
        let Ok(status) = Option::<Status>::deserialize(status) else {
            return Verdict::Failed("the answer of the webhook has a status that cannot be read".into());
        };
        let status = status.unwrap_or_default();
        let own = match status.audiences.is_empty() {
            true => &self.implicit,
            false => &status.audiences,
        };
        let good_for = super::token::common(audiences, own);
        // Before `authenticated` is read, as upstream: a token for another audience is not this server's,
        // whatever the webhook says of it.
        if !audiences.is_empty() && good_for.is_empty() {
            return Verdict::Unknown;
        }
        if !status.authenticated {
            return match status.error {
                error if error.is_empty() => Verdict::Unknown,
                error => Verdict::Failed(shown(&error, token).into()),
            };
        }
        if status.user.is_too_large() {
            return Verdict::Failed("the user of the webhook's answer is too large".into());
        }
        let user = UserInfo {
            name: status.user.username,
            uid: status.user.uid,
            groups: status.user.groups,
            extra: status.user.extra,
        };
        Verdict::User(Authenticated {
            audiences: (!audiences.is_empty()).then_some(good_for),
            ..Authenticated::new(user)
        })
    }
}

/// The webhook's own words, which go to the log, unless they repeat the token.
fn shown(error: &str, token: &str) -> String {
    match error.contains(token) {
        true => "the webhook refused the token".to_owned(),
        false => error.chars().take(MAX_SHOWN).collect(),
    }
}

impl TokenAuthenticator for TokenWebhook {
    fn authenticate_token<'a>(&'a self, shown: ShownToken<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(self.identify(shown))
    }
}
