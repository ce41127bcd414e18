//! Bearer tokens: found in a request once, then shown to each kind of token in order, with a short memory of successes.

use super::{Authenticated, Authenticator, AuthnFuture, Credentials, Outcome, Refusal, authenticated};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::digest;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// As upstream: how long a verified token is believed without looking again.
const REMEMBER_SECONDS: i64 = 10;
/// How many verified tokens are remembered.
const REMEMBER_TOKENS: usize = 4_096;

const WEBSOCKET_PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// One kind of token.
pub trait TokenAuthenticator: Send + Sync + fmt::Debug {
    /// `audiences` is what the asker accepts; a token for none of them is refused.
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
        now: Timestamp,
    ) -> AuthnFuture<'a, Outcome>;
}

type Digest = [u8; 32];

/// All kinds of tokens, in asking order.
#[derive(Debug)]
pub struct TokenAuthenticators {
    kinds: Vec<Arc<dyn TokenAuthenticator>>,
    api_audiences: Vec<String>,
    remembered: Mutex<HashMap<Digest, (Timestamp, Authenticated)>>,
}

impl TokenAuthenticators {
    pub fn new(kinds: Vec<Arc<dyn TokenAuthenticator>>, api_audiences: Vec<String>) -> Self {
        Self {
            kinds,
            api_audiences,
            remembered: Mutex::default(),
        }
    }

    pub fn api_audiences(&self) -> &[String] {
        &self.api_audiences
    }

    /// Who a token names, for askers with these audiences (`TokenReview`).
    pub async fn review(&self, token: &str, audiences: &[String], now: Timestamp) -> Outcome {
        let mut refused = None;
        for kind in &self.kinds {
            match kind.authenticate_token(token, audiences, now).await {
                Outcome::Pass => {}
                Outcome::User(found) => {
                    let audiences = found.audiences;
                    return Outcome::User(Authenticated {
                        audiences,
                        ..authenticated(found.user)
                    });
                }
                Outcome::Refused(refusal) => {
                    refused.get_or_insert(refusal);
                }
            }
        }
        Outcome::Refused(refused.unwrap_or_else(|| Refusal("invalid bearer token".to_owned())))
    }

    async fn identify(&self, token: &str, now: Timestamp) -> Outcome {
        let key = digest_of(token);
        if let Some((_, found)) = self.remembered.lock().get(&key).filter(|(until, _)| *until > now) {
            return Outcome::User(found.clone());
        }
        let outcome = self.review(token, &self.api_audiences, now).await;
        if let Outcome::User(found) = &outcome {
            self.remember(key, now, found.clone());
        }
        outcome
    }

    fn remember(&self, key: Digest, now: Timestamp, found: Authenticated) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBER_TOKENS {
            remembered.retain(|_, (until, _)| *until > now);
        }
        if remembered.len() < REMEMBER_TOKENS {
            let until = now.saturating_add(jiff::SignedDuration::from_secs(REMEMBER_SECONDS));
            remembered.insert(key, (until.unwrap_or(now), found));
        }
    }
}

fn digest_of(token: &str) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    out
}

/// The token of a request: `Authorization: Bearer`, or a WebSocket subprotocol where browsers cannot set headers.
pub fn bearer_token(headers: &HeaderMap) -> Option<String> {
    let from_header = headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| {
            let (scheme, token) = value.trim().split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then(|| token.trim().to_owned())
                .filter(|token| !token.is_empty())
        });
    from_header.or_else(|| {
        let protocols = headers
            .get_all("sec-websocket-protocol")
            .iter()
            .filter_map(|value| value.to_str().ok());
        let encoded = protocols
            .flat_map(|list| list.split(','))
            .find_map(|one| one.trim().strip_prefix(WEBSOCKET_PROTOCOL_PREFIX))?;
        String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
    })
}

impl Authenticator for TokenAuthenticators {
    fn name(&self) -> &'static str {
        "token"
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(async move {
            match bearer_token(credentials.headers) {
                Some(token) => self.identify(&token, credentials.now).await,
                None => Outcome::Pass,
            }
        })
    }
}
