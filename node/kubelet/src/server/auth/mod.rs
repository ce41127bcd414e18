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
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;

use super::known_tokens::KnownTokens;
use super::reviews::Reviews;
use access::DecisionKey;
use answer_cache::AnswerCache;
use tokens::{Asker, TokenDigest};

/// The API server answers a review in this time, or has not answered.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The client is not authenticated.
    Unauthorized,
    /// They may not.
    Forbidden(String),
    /// The client's share of reviews is used up.
    TooMany,
    /// The authorizer could not be asked.
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

/// Creates a review and returns the API server's answer.
async fn created<K>(runtime: &Runtime, client: &Client, review: &K) -> Result<K, String>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let (api, parameters) = (Api::<K>::all(client.clone()), PostParams::default());
    let sent = api.create(&parameters, review);
    match runtime.timeout(REVIEW_TIMEOUT, sent).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err("timed out waiting for the API server".to_owned()),
    }
}
