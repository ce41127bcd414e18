//! Authentication of tokens and authorization of requests: both are the API server's to say, at the rate of
//! [`super::reviews`], and remembered for a short while.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use machinery_meta::UserInfo;
use machinery_runtime::{Runtime, client_of};
use machinery_x509::with_authenticated_group;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::known_tokens::KnownTokens;
use super::reviews::Reviews;

/// Upstream's cache times: of tokens, of a yes, of a no.
const TOKEN_AGE_MAX: Duration = Duration::from_secs(120);
const ALLOWED_AGE_MAX: Duration = Duration::from_secs(300);
const DENIED_AGE_MAX: Duration = Duration::from_secs(30);
/// The API server answers a review in this time, or has not answered.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer tokens are nobody's: those of service accounts have about a thousand bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Answers remembered; where more are still good, all are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody known asks.
    Unauthorized,
    /// They may not.
    Forbidden(String),
    /// The client's share of reviews is used up.
    TooMany,
    /// The authorizer could not be asked.
    Unavailable(String),
}

#[derive(Debug)]
struct Remembered<K, V> {
    table: Mutex<HashMap<K, (Duration, V)>>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K, now: Duration) -> Option<V> {
        let table = self.table.lock();
        table
            .get(key)
            .filter(|(until, _)| *until > now)
            .map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V, now: Duration, age: Duration) {
        let mut table = self.table.lock();
        table.retain(|_, (until, _)| *until > now);
        if table.len() >= REMEMBERED_MAX {
            table.clear();
        }
        table.insert(key, (now + age, value));
    }
}

/// What a token is remembered by: nobody reads a token out of our memory, and each takes the same room.
type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

/// What a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    verb: &'static str,
    subresource: &'static str,
}

/// Whose share a token's review is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asker {
    /// The user's, whose token it was at the last review.
    Known(Arc<str>),
    /// The address's, which all pods of another node have in common.
    Stranger(IpAddr),
}

/// Asks the API server.
pub struct Delegated {
    runtime: Runtime,
    client: Client,
    node_name: String,
    tokens: Remembered<TokenDigest, UserInfo>,
    /// Tokens that are nobody's have a table of their own: invented ones displace no others.
    nobodys: Remembered<TokenDigest, ()>,
    decisions: Remembered<Question, bool>,
    known_tokens: KnownTokens<TokenDigest>,
    token_reviews: Reviews<Asker, TokenDigest, Option<UserInfo>>,
    access_reviews: Reviews<String, Question, bool>,
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
    pub fn new(runtime: Runtime, client: Client, node_name: String) -> Self {
        Self {
            runtime,
            client,
            node_name,
            tokens: Remembered::default(),
            nobodys: Remembered::default(),
            decisions: Remembered::default(),
            known_tokens: KnownTokens::default(),
            token_reviews: Reviews::default(),
            access_reviews: Reviews::default(),
        }
    }

    /// The user of a token that came from this address.
    pub async fn authenticate(&self, token: &str, address: IpAddr) -> Result<UserInfo, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Unauthorized);
        }
        let (key, now) = (digest(token), self.runtime.monotonic());
        if let Some(known) = self.tokens.get(&key, now) {
            return Ok(known);
        }
        if self.nobodys.get(&key, now).is_some() {
            return Err(Refusal::Unauthorized);
        }
        let review = self.review(token);
        let asker = match self.known_tokens.user(&key, now) {
            Some(user) => Asker::Known(user),
            None => Asker::Stranger(client_of(address)),
        };
        let asked = self.token_reviews.ask(asker, key, now, review);
        match asked.await? {
            Some(user) => {
                let user = with_authenticated_group(user);
                self.known_tokens.put(key, &user.name, now);
                self.tokens.put(key, user.clone(), now, TOKEN_AGE_MAX);
                Ok(user)
            }
            None => {
                self.known_tokens.forget(&key);
                self.nobodys.put(key, (), now, TOKEN_AGE_MAX);
                Err(Refusal::Unauthorized)
            }
        }
    }

    /// Sends a review. An answer with an error is a refusal that is not remembered, as upstream's is not.
    fn review(
        &self,
        token: &str,
    ) -> impl Future<Output = Result<Option<UserInfo>, Refusal>> + Send + 'static {
        let spec = TokenReviewSpec {
            token: token.to_string(),
            audiences: None,
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let (client, runtime) = (self.client.clone(), self.runtime.clone());
        async move {
            let answer = created(&runtime, &client, &review).await;
            let status = answer.map(|review| review.status.unwrap_or_default());
            let failed = match &status {
                Ok(status) if status.authenticated == Some(true) => None,
                Ok(status) => status.error.as_ref().filter(|error| !error.is_empty()),
                Err(error) => Some(error),
            };
            if let Some(error) = failed {
                tracing::debug!(error, "unable to authenticate the request due to an error");
                return Err(Refusal::Unauthorized);
            }
            let known = status.ok().filter(|status| status.authenticated == Some(true));
            Ok(known.map(|status| {
                let user = status.user.unwrap_or_default();
                UserInfo {
                    name: user.username.unwrap_or_default(),
                    uid: user.uid.unwrap_or_default(),
                    groups: user.groups.unwrap_or_default(),
                    extra: user.extra.unwrap_or_default(),
                }
            }))
        }
    }

    /// Whether a user may do this to one of the node's subresources; any of those given is enough.
    pub async fn authorize(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresources: &[&'static str],
    ) -> Result<(), Refusal> {
        for subresource in subresources {
            if self.decide(user, verb, subresource).await? {
                return Ok(());
            }
        }
        Err(Refusal::Forbidden(format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        )))
    }

    /// Whether they may.
    async fn decide(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Refusal> {
        let key = Question {
            name: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            verb,
            subresource,
        };
        let now = self.runtime.monotonic();
        if let Some(known) = self.decisions.get(&key, now) {
            return Ok(known);
        }
        let review = self.access_review(user, verb, subresource);
        let asked = self
            .access_reviews
            .ask(user.name.clone(), key.clone(), now, review);
        let allowed = asked.await?;
        let age = match allowed {
            true => ALLOWED_AGE_MAX,
            false => DENIED_AGE_MAX,
        };
        self.decisions.put(key, allowed, now, age);
        Ok(allowed)
    }

    fn access_review(
        &self,
        user: &UserInfo,
        verb: &'static str,
        subresource: &'static str,
    ) -> impl Future<Output = Result<bool, Refusal>> + Send + 'static {
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.into()),
            name: Some(self.node_name.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            groups: Some(user.groups.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let (client, runtime) = (self.client.clone(), self.runtime.clone());
        let failed = format!(
            "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
            user.name
        );
        async move {
            let answer = created(&runtime, &client, &review).await;
            let answer = answer.map_err(|error| {
                tracing::warn!(error, "authorization error");
                Refusal::Unavailable(failed)
            });
            Ok(answer?.status.unwrap_or_default().allowed)
        }
    }
}

/// What the API server makes of a review.
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

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn auth_cache_expires_and_is_bounded() {
        let remembered = Remembered::<TokenDigest, bool>::default();
        let (age, at) = (TOKEN_AGE_MAX, Duration::from_secs);
        remembered.put(digest("one"), true, at(0), age);
        assert_eq!(remembered.get(&digest("one"), at(119)), Some(true));
        assert_eq!(remembered.get(&digest("other"), at(0)), None);
        remembered.put(digest("two"), false, at(120), age);
        assert_eq!(remembered.get(&digest("two"), at(120)), Some(false));
        let held = || remembered.table.lock().len();
        assert_eq!(held(), 1, "what is too old is gone");
        for number in 0..2 * REMEMBERED_MAX {
            remembered.put(digest(&number.to_string()), false, at(121), age);
            assert!(held() <= REMEMBERED_MAX);
        }
    }

    const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 2));
    const MONITOR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 244, 0, 3));

    /// An API server that lets users with a uid and extra values do everything, knows the token `good`, has an error for what begins with `bad`, and answers no review of `late`.
    fn delegated(runtime: &Runtime, reviewed: &Arc<AtomicUsize>) -> Delegated {
        let reviewed = reviewed.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            reviewed.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                if review["spec"]["user"] == "broken" {
                    return Err(std::io::Error::other("a detail of ours"));
                }
                if review["kind"] == "SubjectAccessReview" {
                    let whole = (json!("u1"), json!({"k": ["v"]}));
                    let asked = (&review["spec"]["uid"], &review["spec"]["extra"]);
                    review["status"] = json!({"allowed": asked == (&whole.0, &whole.1)});
                    let body = Full::new(bytes::Bytes::from(review.to_string()));
                    return Ok(http::Response::new(body));
                }
                let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
                if token.starts_with("late") {
                    std::future::pending::<()>().await;
                }
                let error = token.starts_with("bad").then_some("invalid bearer token");
                review["status"] = json!({"authenticated": token == "good", "error": error,
                        "user": {"username": token, "uid": "u1", "extra": {"k": ["v"]}}});
                let body = Full::new(bytes::Bytes::from(review.to_string()));
                Ok::<_, std::io::Error>(http::Response::new(body))
            }
        });
        Delegated::new(runtime.clone(), Client::new(service, "default"), "node".into())
    }

    fn story<F: Future<Output = ()> + Send + 'static>(
        story: impl FnOnce(Runtime, Arc<Delegated>, Arc<AtomicUsize>) -> F + Send + 'static,
    ) {
        let simulation = machinery_runtime::Simulation::new(1);
        let (runtime, reviewed) = (simulation.runtime(), Arc::<AtomicUsize>::default());
        simulation.run(async move {
            let delegated = Arc::new(delegated(&runtime, &reviewed));
            story(runtime, delegated, reviewed).await;
        });
    }

    #[test]
    fn tokens_that_a_pod_invents_are_reviewed_at_a_rate() {
        story(|_, delegated, reviewed| async move {
            let mut refusals = Vec::new();
            for number in 0..1_000 {
                let token = format!("bad {number}");
                refusals.push(delegated.authenticate(&token, POD).await.unwrap_err());
            }
            assert_eq!(reviewed.load(Ordering::Relaxed), 20);
            assert!(refusals[..20].iter().all(|why| *why == Refusal::Unauthorized));
            assert!(refusals[20..].iter().all(|why| *why == Refusal::TooMany));
            let user = delegated.authenticate("good", MONITOR).await.unwrap();
            assert_eq!(user.name, "good");
            assert_eq!(user.groups, [UserInfo::AUTHENTICATED]);
            let again = delegated.authenticate("good", POD).await;
            assert!(again.is_ok(), "no review is needed for it");
        });
    }

    #[test]
    fn token_that_was_good_is_reviewed_again_whoever_uses_up_its_addresss_share() {
        story(|runtime, delegated, _| async move {
            assert!(delegated.authenticate("good", POD).await.is_ok());
            runtime.sleep(TOKEN_AGE_MAX).await;
            for number in 0..1_000 {
                drop(delegated.authenticate(&format!("bad {number}"), POD).await);
            }
            let stranger = delegated.authenticate("unknown", POD).await;
            assert_eq!(stranger, Err(Refusal::TooMany));
            assert!(delegated.authenticate("good", POD).await.is_ok());
        });
    }

    #[test]
    fn tokens_of_nobody_are_remembered_and_errors_are_not() {
        story(|runtime, delegated, reviewed| async move {
            for (token, reviews) in [("unknown", 1), ("unknown", 1), ("bad", 2), ("bad", 3)] {
                let refused = delegated.authenticate(token, POD).await;
                assert_eq!(refused, Err(Refusal::Unauthorized));
                assert_eq!(reviewed.load(Ordering::Relaxed), reviews, "{token}");
            }
            runtime.sleep(TOKEN_AGE_MAX).await;
            drop(delegated.authenticate("unknown", POD).await);
            assert_eq!(reviewed.load(Ordering::Relaxed), 4);
        });
    }

    #[test]
    fn uid_and_extra_of_a_token_are_part_of_the_question() {
        story(|_, delegated, _| async move {
            let user = delegated.authenticate("good", POD).await.unwrap();
            assert_eq!(delegated.authorize(&user, "get", &["proxy"]).await, Ok(()));
            let mut other = user.clone();
            other.extra.clear();
            assert!(delegated.authorize(&other, "get", &["proxy"]).await.is_err());
            other = user;
            other.uid.clear();
            assert!(delegated.authorize(&other, "get", &["proxy"]).await.is_err());
        });
    }

    #[test]
    fn refusals_have_upstreams_words() {
        story(|_, delegated, _| async move {
            let authorize = |name: &str| {
                let user = UserInfo::named(name, ["blue"]);
                let delegated = delegated.clone();
                async move { delegated.authorize(&user, "get", &["pods", "proxy"]).await }
            };
            let words = "Forbidden (user=anna, verb=get, resource=nodes, subresource(s)=[pods proxy])\n";
            assert_eq!(authorize("anna").await, Err(Refusal::Forbidden(words.to_owned())));
            let words = "Authorization error (user=broken, verb=get, resource=nodes, subresource=pods)";
            assert_eq!(
                authorize("broken").await,
                Err(Refusal::Unavailable(words.to_owned()))
            );
        });
    }

    #[test]
    fn tokens_without_an_answer_hold_few_reviews_for_a_short_time() {
        story(|runtime, delegated, reviewed| async move {
            let began = runtime.monotonic();
            let tokens: Vec<String> = (0..50).map(|number| format!("late {}", number % 10)).collect();
            let asked = tokens.iter().map(|token| delegated.authenticate(token, POD));
            let refused = futures::future::join_all(asked).await;
            assert_eq!(reviewed.load(Ordering::Relaxed), 4);
            let count = |why: Refusal| refused.iter().filter(|got| **got == Err(why.clone())).count();
            assert_eq!((count(Refusal::Unauthorized), count(Refusal::TooMany)), (20, 30));
            assert_eq!(runtime.monotonic() - began, REVIEW_TIMEOUT);
            assert!(delegated.authenticate("good", POD).await.is_ok());
        });
    }
}
