//! The authenticators of all issuers, which a changed file replaces together.

use super::issuer::IssuerKeys;
use super::{JwtAuthenticator, JwtObserver, unverified_issuer};
use crate::authn::structured::JwtRules;
use crate::authn::token::{ShownToken, TokenAuthenticator};
use crate::authn::{AuthnFuture, Outcome};
use crate::jwt::SignatureAlgorithm;
use apiserver_egress::{Dialer, RemoteAccess, RemoteError, RemoteOptions};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use machinery_runtime::{Runtime, Scope};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Interval of checks whether new authenticators are ready.
const READY_INTERVAL: Duration = Duration::from_millis(100);

/// Parts that authenticators are made of.
#[derive(Clone)]
pub struct JwtParts {
    pub dialer: Dialer,
    pub observer: Arc<dyn JwtObserver>,
    pub algorithms: Vec<SignatureAlgorithm>,
    pub runtime: Runtime,
}

impl fmt::Debug for JwtParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtParts").finish_non_exhaustive()
    }
}

/// See the module.
#[derive(Debug)]
pub struct JwtAuthenticators {
    parts: JwtParts,
    current: ArcSwap<Set>,
}

struct Set {
    authenticators: Vec<JwtAuthenticator>,
    /// Their tasks.
    _scope: Scope,
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Set").field(&self.authenticators).finish()
    }
}

impl Set {
    fn new(parts: &JwtParts, rules: Vec<JwtRules>) -> Result<Self, RemoteError> {
        let scope = parts.runtime.child_scope();
        let mut authenticators = Vec::new();
        for rules in rules {
            let issuer = &rules.issuer;
            let access = RemoteAccess::new(RemoteOptions {
                ca_bundle: issuer.certificate_authority.as_bytes(),
                ..RemoteOptions::default()
            })?;
            let keys = IssuerKeys::new(
                &issuer.url,
                &issuer.discovery_url,
                access,
                parts.dialer.clone(),
                Arc::clone(&parts.observer),
                scope.runtime().clone(),
            );
            let found = Arc::clone(&keys).discover();
            scope.runtime().spawn("discovery of an issuer", found).detach();
            authenticators.push(JwtAuthenticator {
                algorithms: parts.algorithms.clone(),
                rules,
                keys,
            });
        }
        Ok(Self {
            authenticators,
            _scope: scope,
        })
    }

    fn issuers(&self) -> impl Iterator<Item = &str> {
        self.authenticators.iter().map(|own| own.rules.issuer())
    }

    /// The reason why tokens cannot be verified yet.
    fn problem(&self) -> Option<String> {
        crate::aggregated(self.authenticators.iter().filter_map(|own| own.keys.problem()))
    }
}

impl JwtAuthenticators {
    /// Authenticators that get ready by and by.
    ///
    /// # Errors
    /// The authorities of an issuer cannot be used.
    pub fn new(parts: JwtParts, rules: Vec<JwtRules>) -> Result<Self, RemoteError> {
        let current = ArcSwap::from_pointee(Set::new(&parts, rules)?);
        Ok(Self { parts, current })
    }

    /// Puts others in their place once those are ready.
    ///
    /// # Errors
    /// They are not ready in time; those of before stay.
    pub async fn replace(&self, rules: Vec<JwtRules>, patience: Duration) -> Result<(), String> {
        let next = Set::new(&self.parts, rules).map_err(|error| error.to_string())?;
        let runtime = &self.parts.runtime;
        let deadline = runtime.monotonic() + patience;
        while let Some(why) = next.problem() {
            if runtime.monotonic() >= deadline {
                return Err(why);
            }
            runtime.sleep(READY_INTERVAL).await;
        }
        let next = Arc::new(next);
        let last = self.current.swap(Arc::clone(&next));
        let gone = last
            .issuers()
            .filter(|own| next.issuers().all(|other| other != *own));
        gone.for_each(|issuer| self.parts.observer.removed(issuer));
        Ok(())
    }

    async fn identify(&self, token: &str, now: Timestamp) -> Outcome {
        let set = self.current.load_full();
        if set.authenticators.is_empty() {
            return Outcome::Pass;
        }
        let Some(issuer) = unverified_issuer(token) else {
            return Outcome::Pass;
        };
        let Some(own) = set.authenticators.iter().find(|own| own.rules.issuer() == issuer) else {
            return Outcome::Pass;
        };
        let runtime = &self.parts.runtime;
        let begun = runtime.monotonic();
        let outcome = own.outcome(token, now).await;
        let seconds = runtime.monotonic().saturating_sub(begun).as_secs_f64();
        let succeeded = matches!(outcome, Outcome::User(_));
        self.parts.observer.authenticated(&issuer, succeeded, seconds);
        outcome
    }
}

impl TokenAuthenticator for JwtAuthenticators {
    fn authenticate_token<'a>(&'a self, shown: ShownToken<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(self.identify(shown.token, shown.now))
    }
}
