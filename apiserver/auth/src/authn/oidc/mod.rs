//! Tokens of OpenID Connect issuers, by `AuthenticationConfiguration` or the flags `--oidc-*`.
//!
//! [`JwtAuthenticators`] holds one authenticator for each issuer; a changed file replaces all at once. A token names its issuer,
//! and the others never look at it. [`issuer`] finds the issuer's keys and keeps them fresh, [`claims`] checks what a token
//! says, [`user`] makes a user of it by the rules of the configuration.
//!
//! Hostile here: tokens, which any client sends, and answers of issuers. Both are bounded in size; no token makes this server ask an
//! issuer more often than [`issuer`] allows, and a slow issuer delays its own tokens alone. Tokens and claims are never logged.

mod claims;
mod issuer;
mod observer;
mod set;
mod user;

#[cfg(test)]
mod tests;

pub use observer::JwtObserver;
pub use set::{JwtAuthenticators, JwtParts};

use super::structured::JwtRules;
use super::{Authenticated, Outcome, Refusal};
use crate::jwt::{Compact, SignatureAlgorithm};
use claims::Claims;
use issuer::IssuerKeys;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// Tokens with many groups are long; a head of a request has no room for longer ones.
const MAX_TOKEN_BYTES: usize = 128 << 10;

/// Tokens of one issuer.
#[derive(Debug)]
pub(crate) struct JwtAuthenticator {
    rules: JwtRules,
    algorithms: Vec<SignatureAlgorithm>,
    keys: Arc<IssuerKeys>,
}

impl JwtAuthenticator {
    async fn identify(&self, token: &str, now: Timestamp) -> Result<Authenticated, Refusal> {
        let verified = self.verify(token, now).await;
        let claims = verified.map_err(|refusal| Refusal {
            reason: format!("oidc: verify token: {refusal}"),
            ..refusal
        })?;
        let user = user::of_claims(&self.rules, &claims)?;
        Ok(Authenticated::new(user))
    }

    /// The claims of a token of this issuer for one of its audiences, which is neither too old nor too young.
    async fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, Refusal> {
        let compact = Compact::parse(token, MAX_TOKEN_BYTES)
            .map_err(|error| format!("oidc: malformed jwt: {error}"))?;
        let claims = Claims::read(&compact.claims)?;
        claims.check_issuer(&self.rules.issuer.url)?;
        claims.check_audience(&self.rules.issuer.audiences)?;
        claims.check_times(now)?;
        let algorithm = SignatureAlgorithm::named(&compact.algorithm)
            .filter(|own| self.algorithms.contains(own))
            .ok_or_else(|| {
                let expected: Vec<&str> = self.algorithms.iter().map(|own| own.name()).collect();
                format!("oidc: id token signed with unsupported algorithm, expected {expected:?}")
            })?;
        self.keys.verify(algorithm, &compact).await?;
        Ok(claims)
    }

    async fn outcome(&self, token: &str, now: Timestamp) -> Outcome {
        if !self.keys.is_ready() {
            return Outcome::Refused(Refusal::new("oidc: authenticator not initialized"));
        }
        match self.identify(token, now).await {
            Ok(found) => Outcome::User(found),
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}

/// The issuer that a token names, before anything of it is verified.
fn unverified_issuer(token: &str) -> Option<String> {
    let compact = Compact::parse(token, MAX_TOKEN_BYTES).ok()?;
    let claims: Value = serde_json::from_slice(&compact.claims).ok()?;
    let issuer = claims.get("iss")?.as_str()?;
    Some(claims::full_issuer(issuer).to_owned())
}
