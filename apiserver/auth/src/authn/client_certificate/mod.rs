//! Client certificates: the common name is the user, the organizations are the groups.
//!
//! The TLS layer requests a certificate and checks only that the peer holds its key; the chain is verified here, so that
//! a bad certificate is answered with 401 and not with a broken handshake. One without a common name passes.

use super::{Authenticator, AuthnFuture, Credentials, Outcome, Refusal, authenticated};
use jiff::Timestamp;
use machinery_x509::{Authorities, AuthoritiesError, PeerCertificate};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::OnceLock;

/// Takes how long a certificate that came with a request still counts, in seconds.
type Lifetimes = Box<dyn Fn(f64) + Send + Sync>;

/// Verifies chains against authorities that can be replaced while running.
pub struct ClientCertificates {
    authorities: Authorities,
    lifetimes: OnceLock<Lifetimes>,
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates").finish_non_exhaustive()
    }
}

impl ClientCertificates {
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Self, AuthoritiesError> {
        Ok(Self {
            authorities: Authorities::new(authorities.to_vec())?,
            lifetimes: OnceLock::new(),
        })
    }

    /// Measures how long certificates still count, good ones and others, with every request that comes with one. The first
    /// measure stays.
    pub fn measure_lifetimes(&self, lifetimes: impl Fn(f64) + Send + Sync + 'static) {
        drop(self.lifetimes.set(Box::new(lifetimes)));
    }

    /// Replaces the authorities, for connections that are open too.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), AuthoritiesError> {
        self.authorities.replace(authorities.to_vec())
    }

    pub fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.authorities.certificates()
    }

    fn identify(&self, peer: &PeerCertificate, now: Timestamp) -> Outcome {
        if let (Some(lifetimes), Some(end)) = (self.lifetimes.get(), peer.not_after()) {
            lifetimes(end.duration_since(now).as_secs_f64());
        }
        let verified = match self.authorities.verified(peer, now) {
            Ok(verified) => verified,
            Err(why) => {
                let own = peer.identifier();
                return Outcome::Refused(Refusal::new(format!("verifying certificate {own} failed: {why}")));
            }
        };
        match &verified.user {
            Ok(Some(user)) => Outcome::User(authenticated(user.clone())),
            Ok(None) => Outcome::Pass,
            Err(why) => Outcome::Refused(Refusal::new(why.to_string())),
        }
    }
}

impl Authenticator for ClientCertificates {
    fn name(&self) -> &'static str {
        "client-certificate"
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        let outcome = credentials
            .peer
            .map_or(Outcome::Pass, |peer| self.identify(peer, credentials.now));
        Box::pin(std::future::ready(outcome))
    }
}

#[cfg(test)]
mod tests;
