//! Authentication: the user of a request.
//!
//! Authenticators read a request's [`Credentials`] in the order of [`AuthenticatorChain::new`]'s list. One that does
//! not find its kind of credentials passes; one that finds them either names the user or refuses. A request whose
//! credentials were refused is never treated as anonymous.

pub mod anonymous;
pub mod bootstrap_token;
pub mod client_certificate;
mod expired;
pub mod legacy_service_account;
pub mod oidc;
mod remembered_users;
pub mod request_header;
pub mod service_account;
pub mod structured;
pub mod token;
pub mod token_file;
pub mod token_webhook;

pub use client_certificate::ClientCertificates;
pub use expired::have_expired;
pub use machinery_x509::{AuthoritiesError, PeerCertificate, certificate_bundle, is_anonymous};
pub use request_header::FrontProxyHeaders;
pub use token::{ShownToken, TokenAuthenticators, tokens_of};

use http::HeaderMap;
use jiff::Timestamp;
use machinery_meta::UserInfo;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A boxed future, so that authenticators stay usable behind `dyn`.
pub type AuthnFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The parts of a request that authenticators read.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    pub peer: Option<&'a PeerCertificate>,
    pub headers: &'a HeaderMap,
    pub path: &'a str,
    /// The client's address, or its network; `None` in process.
    pub client: Option<IpAddr>,
    pub now: Timestamp,
}

/// An authenticator's result.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Not my kind of credentials.
    Pass,
    User(Authenticated),
    Refused(Refusal),
}

/// A user with a proven identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    pub user: UserInfo,
    /// The audiences the credentials are good for; `None` for credentials that know none.
    pub audiences: Option<Vec<String>>,
    pub remarks: AuthenticationNotes,
}

/// AuthenticationNotes on credentials: annotations for the audit log, and warnings to the client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthenticationNotes {
    pub annotations: Vec<(&'static str, String)>,
    pub warnings: Vec<&'static str>,
}

impl Authenticated {
    pub fn new(user: UserInfo) -> Self {
        Self {
            user,
            audiences: None,
            remarks: AuthenticationNotes::default(),
        }
    }
}

const WITHOUT_CREDENTIALS: &str = "no credentials were given";

/// Credentials that are no good. The reason goes to the log; the client learns `Unauthorized`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    pub reason: String,
    pub remarks: AuthenticationNotes,
    /// They were not looked at, since too many others are: the client is to come again (decision 0055).
    pub is_unchecked: bool,
}

impl Refusal {
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            remarks: AuthenticationNotes::default(),
            is_unchecked: false,
        }
    }

    /// The refusal of credentials without a look at them.
    pub fn unchecked(reason: impl Into<String>) -> Self {
        Self {
            is_unchecked: true,
            ..Self::new(reason)
        }
    }

    /// Reports whether there were no credentials at all.
    pub fn is_without_credentials(&self) -> bool {
        self.reason == WITHOUT_CREDENTIALS
    }
}

/// One way to prove an identity.
pub trait Authenticator: Send + Sync + fmt::Debug {
    fn name(&self) -> &'static str;

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome>;
}

/// Authenticators in asking order.
#[derive(Debug, Clone)]
pub struct AuthenticatorChain(Vec<Arc<dyn Authenticator>>);

impl AuthenticatorChain {
    /// The usual order: front proxy, client certificate, bearer tokens, anonymous.
    pub fn new(authenticators: Vec<Arc<dyn Authenticator>>) -> Self {
        Self(authenticators)
    }

    /// The user, or why there is none.
    pub async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Authenticated, Refusal> {
        let mut outcome = self.identify(credentials).await;
        let remarks = match &mut outcome {
            Ok(found) => &mut found.remarks,
            Err(refusal) => &mut refusal.remarks,
        };
        let ignored = machinery_x509::ignored_token_warning(credentials.headers);
        // Also for a refusal: the ignored header may be why there were no credentials.
        remarks.warnings.extend(ignored);
        outcome
    }

    async fn identify(&self, credentials: &Credentials<'_>) -> Result<Authenticated, Refusal> {
        let mut refusals = Refusals::default();
        for authenticator in &self.0 {
            // Anonymous stands last and takes only requests that brought nothing.
            if !refusals.is_empty() && authenticator.name() == anonymous::NAME {
                break;
            }
            match authenticator.authenticate(credentials).await {
                Outcome::Pass => {}
                Outcome::User(found) => return Ok(found),
                // A refusal does not end the chain: a token that one issuer refuses may be another's
                // (upstream's union authenticator).
                Outcome::Refused(refusal) => refusals.add(refusal),
            }
        }
        if refusals.is_empty() {
            return Err(Refusal::new(WITHOUT_CREDENTIALS.to_owned()));
        }
        Err(refusals.into_one())
    }
}

/// Refusals of several authenticators.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    reasons: Vec<String>,
    remarks: AuthenticationNotes,
    is_unchecked: bool,
}

impl Refusals {
    pub(crate) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    pub(crate) fn add(&mut self, refusal: Refusal) {
        self.is_unchecked |= refusal.is_unchecked;
        self.reasons.push(refusal.reason);
        self.remarks.annotations.extend(refusal.remarks.annotations);
        self.remarks.warnings.extend(refusal.remarks.warnings);
    }

    /// All of them as upstream words an aggregate.
    pub(crate) fn into_one(self) -> Refusal {
        Refusal {
            reason: crate::aggregated(self.reasons).unwrap_or_default(),
            remarks: self.remarks,
            is_unchecked: self.is_unchecked,
        }
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::new(reason)
    }
}

/// Takes the credentials out of a request that has been let in, so that no handler or extension behind sees them: tokens,
/// the usual headers of front proxies and those of ours.
pub fn forget_credentials(headers: &mut HeaderMap, of_proxies: &FrontProxyHeaders) {
    machinery_x509::forget_token(headers);
    FrontProxyHeaders::default().forget(headers);
    of_proxies.forget(headers);
}

/// A user with a proven identity, in the group of all such users.
pub(crate) fn authenticated(user: UserInfo) -> Authenticated {
    Authenticated::new(machinery_x509::with_authenticated_group(user))
}

#[cfg(test)]
mod tests;
