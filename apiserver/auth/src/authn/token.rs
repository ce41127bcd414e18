//! Bearer tokens: found in a request once, then shown to each kind of token in order, with a short memory of successes.

use super::remembered_users::{Digest, RememberedUsers, Room};
use super::{
    Authenticated, Authenticator, AuthnFuture, Credentials, Outcome, Refusal, Refusals, authenticated,
};
use http::HeaderMap;
use jiff::Timestamp;
use machinery_x509::bearer_tokens;
use parking_lot::Mutex;
use ring::digest;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Time for which a verified token is believed without looking again, as upstream.
const REMEMBER_SECONDS: i64 = 10;
/// Room for verified tokens. Those of one service account are as many as its pods.
const ROOM: Room = Room {
    tokens: 4_096,
    tokens_of_user: 4_096,
    bytes: 32 << 20,
};

const INVALID: &str = "invalid bearer token";

/// A token that is to be authenticated.
#[derive(Debug, Clone, Copy)]
pub struct ShownToken<'a> {
    pub token: &'a str,
    /// Audiences that the asker accepts; a token for none of them is refused.
    pub audiences: &'a [String],
    /// The client whose share a question to another server takes: the address of a request, or the sender of a TokenReview.
    pub client: &'a str,
    pub now: Timestamp,
}

/// One kind of token.
pub trait TokenAuthenticator: Send + Sync + fmt::Debug {
    fn authenticate_token<'a>(&'a self, shown: ShownToken<'a>) -> AuthnFuture<'a, Outcome>;
}

/// All kinds of tokens, in asking order.
#[derive(Debug)]
pub struct TokenAuthenticators {
    kinds: Vec<Arc<dyn TokenAuthenticator>>,
    api_audiences: Vec<String>,
    remembered: Mutex<RememberedUsers<Timestamp>>,
}

impl TokenAuthenticators {
    pub fn new(kinds: Vec<Arc<dyn TokenAuthenticator>>, api_audiences: Vec<String>) -> Self {
        Self {
            kinds,
            api_audiences,
            remembered: Mutex::new(RememberedUsers::new(ROOM)),
        }
    }

    pub fn api_audiences(&self) -> &[String] {
        &self.api_audiences
    }

    /// Returns the user of a token, for clients of its audiences (`TokenReview`).
    pub async fn review(&self, shown: ShownToken<'_>) -> Outcome {
        // Upstream's list begins with the refusal of its own loopback token.
        let mut refusals = Refusals::default();
        refusals.add(Refusal::new(INVALID.to_owned()));
        for kind in &self.kinds {
            match kind.authenticate_token(shown).await {
                Outcome::Pass => {}
                Outcome::User(found) => {
                    let user = authenticated(found.user).user;
                    return Outcome::User(Authenticated { user, ..found });
                }
                Outcome::Refused(refusal) => refusals.add(refusal),
            }
        }
        Outcome::Refused(refusals.into_one())
    }

    async fn identify(&self, token: &str, client: &str, now: Timestamp) -> Outcome {
        let key = digest_of(token);
        if let Some(found) = self.remembered.lock().get(&key, now) {
            return Outcome::User(found);
        }
        let shown = ShownToken {
            token,
            audiences: &self.api_audiences,
            client,
            now,
        };
        let outcome = self.review(shown).await;
        if let Outcome::User(found) = &outcome {
            let until = now.saturating_add(jiff::SignedDuration::from_secs(REMEMBER_SECONDS));
            let until = until.unwrap_or(now);
            self.remembered.lock().put(key, found, until, now);
        }
        outcome
    }
}

/// The audiences of a token that the asker accepts.
///
/// # Errors
/// [`Refusal`] where there is none and the asker names some.
pub(super) fn accepted(own: &[String], audiences: &[String]) -> Result<Vec<String>, Refusal> {
    let common = common(own, audiences);
    if common.is_empty() && !audiences.is_empty() {
        return Err(Refusal::new(format!(
            "token audiences {own:?} is invalid for the target audiences {audiences:?}"
        )));
    }
    Ok(common)
}

/// Audiences of the first list that are in the second. Both are clients' lists, tens of thousands long where they want.
pub(crate) fn common(own: &[String], audiences: &[String]) -> Vec<String> {
    let audiences: HashSet<&String> = audiences.iter().collect();
    let common = own.iter().filter(|one| audiences.contains(one));
    common.cloned().collect()
}

/// The tokens that a request may be authenticated by; those that can be read.
pub fn tokens_of(headers: &HeaderMap) -> impl Iterator<Item = String> {
    bearer_tokens(headers).filter_map(Result::ok)
}

fn digest_of(token: &str) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    out
}

impl Authenticator for TokenAuthenticators {
    fn name(&self) -> &'static str {
        "token"
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(async move {
            let mut first = Outcome::Pass;
            let client = credentials.client.map(|own| own.to_string()).unwrap_or_default();
            for token in bearer_tokens(credentials.headers) {
                let outcome = match token {
                    Ok(token) => self.identify(&token, &client, credentials.now).await,
                    Err(malformed) => Outcome::Refused(Refusal::new(malformed.to_string())),
                };
                match (outcome, &first) {
                    (user @ Outcome::User(_), _) => return user,
                    (outcome, Outcome::Pass) => first = outcome,
                    _ => {}
                }
            }
            first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, crowded_tokens};

    #[track_caller]
    fn check(own: &[&str], audiences: &[&str], expected: &[&str]) {
        let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|&one| one.to_owned()).collect() };
        assert_eq!(common(&owned(own), &owned(audiences)), owned(expected));
    }

    #[test]
    fn token_without_a_look_is_not_said_to_be_bad() {
        let tokens = crowded_tokens();
        let shown = ShownToken {
            token: "t",
            audiences: &[],
            client: "",
            now: Timestamp::UNIX_EPOCH,
        };
        let outcome = block_on(tokens.review(shown));
        let Outcome::Refused(refusal) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(refusal.is_unchecked, "{refusal:?}");
    }

    #[test]
    fn token_audiences_in_common_keep_the_order_of_the_token() {
        check(&["c", "a", "b"], &["a", "x", "c"], &["c", "a"]);
        check(&["a", "a"], &["a"], &["a", "a"]);
        check(&["a"], &[], &[]);
        check(&[], &["a"], &[]);
    }
}
