//! Authentication of tokens and authorization of requests: both are the API server's to say, at the rate of
//! [`super::reviews`], and remembered for a short while.

mod access;
mod answer_cache;
#[cfg(test)]
mod stories;
mod tokens;

use std::time::Duration;

use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::Status;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_x509::KnownTokens;

use super::reviews::Reviews;
use access::DecisionKey;
pub(super) use access::{ALLOWED_AGE_MAX, DENIED_AGE_MAX};
use answer_cache::AnswerCache;
pub(super) use tokens::TOKEN_AGE_MAX;
use tokens::{Asker, TokenDigest};

/// The API server answers a review in this time, or has not answered.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

const TOO_MANY_REQUESTS: u16 = 429;

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The client is not authenticated.
    Unauthorized,
    /// They may not.
    Forbidden(String),
    /// The client's share of reviews is used up, or the API server has no place for another.
    TooMany,
    /// The authorizer did not answer.
    Unavailable(String),
}

/// Asks the API server.
pub(crate) struct Delegated {
    runtime: Runtime,
    client: Client,
    node_name: String,
    tokens: AnswerCache<TokenDigest, UserInfo>,
    /// Refused tokens have a table of their own: invented ones displace no valid ones.
    unauthenticated: AnswerCache<TokenDigest, ()>,
    decisions: AnswerCache<DecisionKey, bool>,
    known_tokens: KnownTokens<TokenDigest>,
    token_reviews: Reviews<Asker, TokenDigest, Option<UserInfo>>,
    access_reviews: Reviews<String, DecisionKey, bool>,
}

impl std::fmt::Debug for Delegated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegated")
            .field("node_name", &self.node_name)
            .finish_non_exhaustive()
    }
}

impl Delegated {
    /// Nothing is remembered yet.
    pub(crate) fn new(runtime: Runtime, client: Client, node_name: String) -> Self {
        Self {
            runtime,
            client,
            node_name,
            tokens: AnswerCache::default(),
            unauthenticated: AnswerCache::default(),
            decisions: AnswerCache::default(),
            known_tokens: KnownTokens::default(),
            token_reviews: Reviews::default(),
            access_reviews: Reviews::default(),
        }
    }
}

/// Reason why a review has no answer.
enum Unanswered {
    /// The API server has had no place for it until its time was over.
    Busy,
    /// It failed, for the reason in these words.
    Failed(String),
}

/// Creates a review and returns the API server's answer. A busy server gets a retry, as upstream's kubelet does
/// (`webhook.DefaultShouldRetry`, and its client at `Retry-After`).
async fn created<K>(runtime: &Runtime, client: &Client, review: &K) -> Result<K, Unanswered>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let (api, parameters) = (Api::<K>::all(client.clone()), PostParams::default());
    let mut busy = false;
    let sent = async {
        loop {
            match api.create(&parameters, review).await {
                Err(kube::Error::Api(status)) if status.code == TOO_MANY_REQUESTS => {
                    busy = true;
                    runtime.sleep(pause_of(&status)).await;
                }
                answer => return answer.map_err(|error| Unanswered::Failed(error.to_string())),
            }
        }
    };
    match runtime.timeout(REVIEW_TIMEOUT, sent).await {
        Ok(answer) => answer,
        Err(_) if busy => Err(Unanswered::Busy),
        Err(_) => {
            let why = "timed out waiting for the API server";
            Err(Unanswered::Failed(why.to_owned()))
        }
    }
}

/// Pause before a retry at a busy server: its `Retry-After`, and no less than a second.
fn pause_of(status: &Status) -> Duration {
    let said = status.details.as_ref().map(|details| details.retry_after_seconds);
    Duration::from_secs(u64::from(said.unwrap_or(0).max(1)))
}
