//! Bearer tokens: found in a request once, then shown to each kind of token in order, with a short memory of successes.

use super::{
    Authenticated, Authenticator, AuthnFuture, Credentials, Outcome, Refusal, Remarks, authenticated,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::SEC_WEBSOCKET_PROTOCOL;
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

const INVALID: &str = "invalid bearer token";
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
        // Upstream's list begins with the refusal of its own loopback token.
        let mut reasons = vec![INVALID.to_owned()];
        let mut remarks = Remarks::default();
        for kind in &self.kinds {
            match kind.authenticate_token(token, audiences, now).await {
                Outcome::Pass => {}
                Outcome::User(found) => {
                    let user = authenticated(found.user).user;
                    return Outcome::User(Authenticated { user, ..found });
                }
                Outcome::Refused(refusal) => {
                    reasons.push(refusal.reason);
                    remarks.annotations.extend(refusal.remarks.annotations);
                    remarks.warnings.extend(refusal.remarks.warnings);
                }
            }
        }
        let reason = crate::aggregated(reasons).unwrap_or_default();
        Outcome::Refused(Refusal { reason, remarks })
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

/// The audiences of a token that the asker accepts.
///
/// # Errors
/// [`Refusal`] where there is none and the asker names some.
pub(super) fn accepted(own: &[String], audiences: &[String]) -> Result<Vec<String>, Refusal> {
    let common: Vec<String> = own
        .iter()
        .filter(|one| audiences.contains(one))
        .cloned()
        .collect();
    if common.is_empty() && !audiences.is_empty() {
        return Err(Refusal::new(format!(
            "token audiences {own:?} is invalid for the target audiences {audiences:?}"
        )));
    }
    Ok(common)
}

fn digest_of(token: &str) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    out
}

/// The token of a request: `Authorization: Bearer`, or a WebSocket subprotocol where browsers cannot set headers.
pub(super) fn bearer_token(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    match bearer_word(headers).filter(|token| !token.is_empty()) {
        Some(token) => Ok(Some(token.to_owned())),
        None => websocket_token(headers),
    }
}

/// Returns what stands between the first blank after `Bearer` and the next, as upstream splits it: nothing where two blanks follow
/// each other.
fn bearer_word(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let mut words = value.trim().split(' ');
    let is_bearer = words.next()?.eq_ignore_ascii_case("bearer");
    words.next().filter(|_| is_bearer)
}

/// The warning about a token that is ignored because two blanks stand before it.
pub(super) fn ignored(headers: &HeaderMap) -> Option<&'static str> {
    const WARNING: &str =
        "the provided Authorization header contains extra space before the bearer token, and is ignored";
    bearer_word(headers)?.is_empty().then_some(WARNING)
}

/// As upstream's `authentication/request/websocket/protocol.go`: one token, and a protocol beside it to answer with.
fn websocket_token(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let refused = |why: &str| Err(Refusal::new(why.to_owned()));
    let upgrades = headers.get(http::header::UPGRADE);
    if !upgrades.is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Ok(None);
    }
    let protocols = websocket_protocols(headers);
    let mut tokens = protocols
        .iter()
        .filter_map(|one| one.strip_prefix(WEBSOCKET_PROTOCOL_PREFIX));
    let Some(encoded) = tokens.next() else {
        return Ok(None);
    };
    if tokens.next().is_some() {
        return refused("multiple base64.bearer.authorization tokens specified");
    }
    let Ok(decoded) = URL_SAFE_NO_PAD.decode(encoded) else {
        return refused("invalid base64.bearer.authorization token encoding");
    };
    let Ok(token) = String::from_utf8(decoded) else {
        return refused("invalid base64.bearer.authorization token");
    };
    if protocols.len() == 1 {
        return refused("missing additional subprotocol");
    }
    Ok(Some(token).filter(|token| !token.is_empty()))
}

fn websocket_protocols(headers: &HeaderMap) -> Vec<&str> {
    let lists = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    lists
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(',').map(str::trim))
        .collect()
}

/// Takes the token out of a request that it has let in: nobody behind needs it, and what is proxied passes headers on.
pub(super) fn forget(headers: &mut HeaderMap) {
    headers.remove(http::header::AUTHORIZATION);
    let protocols = websocket_protocols(headers);
    let kept: Vec<&str> = protocols
        .iter()
        .copied()
        .filter(|one| !one.starts_with(WEBSOCKET_PROTOCOL_PREFIX))
        .collect();
    if kept.len() == protocols.len() {
        return;
    }
    // A value that is no text is no protocol, and goes with the token.
    match http::HeaderValue::from_str(&kept.join(",")) {
        Ok(rest) => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, rest)),
        Err(_) => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

impl Authenticator for TokenAuthenticators {
    fn name(&self) -> &'static str {
        "token"
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(async move {
            match bearer_token(credentials.headers) {
                Ok(Some(token)) => self.identify(&token, credentials.now).await,
                Ok(None) => Outcome::Pass,
                Err(refusal) => Outcome::Refused(refusal),
            }
        })
    }
}
