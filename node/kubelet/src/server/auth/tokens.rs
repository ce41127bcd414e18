//! Authentication of bearer tokens, by reviews of the API server.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use machinery_meta::UserInfo;
use machinery_runtime::client_of;
use machinery_x509::with_authenticated_group;
use sha2::{Digest, Sha256};

use super::{Delegated, Refusal, Unanswered, created};

/// Upstream's cache time of tokens.
pub(in crate::server) const TOKEN_AGE_MAX: Duration = Duration::from_secs(120);
/// Longest token that is authenticated: those of service accounts have about a thousand bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Key of a token in the cache: a digest keeps the token out of memory and has one size.
pub(super) type TokenDigest = [u8; 32];

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

/// Share that a token's review is charged to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Asker {
    /// The user's, whose token it was at the last review.
    Known(Arc<str>),
    /// The address's, which all pods of another node have in common.
    Anonymous(IpAddr),
}

impl Delegated {
    /// The user of a token that came from this address.
    pub(crate) async fn authenticate(&self, token: &str, address: IpAddr) -> Result<UserInfo, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Unauthorized);
        }
        let (key, now) = (digest(token), self.runtime.monotonic());
        if let Some(known) = self.tokens.get(&key, now) {
            return Ok(known);
        }
        if self.unauthenticated.get(&key, now).is_some() {
            return Err(Refusal::Unauthorized);
        }
        let review = self.review(token);
        let asker = match self.known_tokens.user(&key, now) {
            Some(user) => Asker::Known(user),
            None => Asker::Anonymous(client_of(address)),
        };
        let answers = self.token_reviews.ask(asker, key, now, review);
        match answers.await? {
            Some(user) => {
                let user = with_authenticated_group(user);
                self.known_tokens.put(key, &user.name, now);
                self.tokens.put(key, user.clone(), now, TOKEN_AGE_MAX);
                Ok(user)
            }
            None => {
                self.known_tokens.forget(&key);
                self.unauthenticated.put(key, (), now, TOKEN_AGE_MAX);
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
            let status = match created(&runtime, &client, &review).await {
                Ok(review) => Ok(review.status.unwrap_or_default()),
                Err(Unanswered::Busy) => return Err(Refusal::TooMany),
                Err(Unanswered::Failed(error)) => Err(error),
            };
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
}

#[cfg(test)]
mod tests {
    use super::super::REVIEW_TIMEOUT;
    use super::super::stories::{MONITOR, POD, story};
    use super::*;
    use std::sync::atomic::Ordering;

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
    fn token_that_a_busy_server_has_not_looked_at_is_no_strangers() {
        story(|runtime, delegated, reviewed| async move {
            assert!(delegated.authenticate("soon good", POD).await.is_ok());
            assert_eq!(reviewed.load(Ordering::Relaxed), 2, "it was asked again");
            let began = runtime.monotonic();
            let refused = delegated.authenticate("busy", POD).await;
            assert_eq!(refused, Err(Refusal::TooMany));
            assert_eq!(runtime.monotonic() - began, REVIEW_TIMEOUT);
            assert_eq!(
                reviewed.load(Ordering::Relaxed),
                2 + 5,
                "every two seconds, as it said"
            );
        });
    }

    #[test]
    fn tokens_without_an_answer_hold_few_reviews_for_a_short_time() {
        story(|runtime, delegated, reviewed| async move {
            let began = runtime.monotonic();
            let tokens: Vec<String> = (0..50).map(|number| format!("late {}", number % 10)).collect();
            let answers = tokens.iter().map(|token| delegated.authenticate(token, POD));
            let refused = futures::future::join_all(answers).await;
            assert_eq!(reviewed.load(Ordering::Relaxed), 4);
            let count = |why: Refusal| refused.iter().filter(|got| **got == Err(why.clone())).count();
            assert_eq!((count(Refusal::Unauthorized), count(Refusal::TooMany)), (20, 30));
            assert_eq!(runtime.monotonic() - began, REVIEW_TIMEOUT);
            assert!(delegated.authenticate("good", POD).await.is_ok());
        });
    }
}
