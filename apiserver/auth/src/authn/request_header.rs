//! A front proxy that proved itself with a certificate names the user in headers (`--requestheader-*`).

use super::client_certificate::{AuthoritiesError, verifier, verify_chain};
use super::{Authenticator, AuthnFuture, Credentials, Outcome, authenticated};
use http::{HeaderMap, HeaderName};
use machinery_meta::UserInfo;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use std::fmt;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

const EXTRA_PREFIX: &str = "x-remote-extra-";
/// What a front proxy says of the user beside its extras.
const NAMES: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];

/// See the module.
pub struct RequestHeader {
    verifier: Arc<dyn ClientCertVerifier>,
    allowed_names: Vec<String>,
}

impl fmt::Debug for RequestHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHeader")
            .field("allowed_names", &self.allowed_names)
            .finish_non_exhaustive()
    }
}

impl RequestHeader {
    /// Trusts certificates of these authorities whose common name is one of `allowed_names` (empty: any).
    pub fn new(
        authorities: &[CertificateDer<'_>],
        allowed_names: Vec<String>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthoritiesError> {
        Ok(Self {
            verifier: verifier(authorities, provider)?,
            allowed_names,
        })
    }

    fn identify(&self, credentials: &Credentials<'_>) -> Outcome {
        let (Some(peer), Some(name)) = (credentials.peer, text(credentials.headers, "x-remote-user")) else {
            return Outcome::Pass;
        };
        // A peer that is no front proxy may still be someone by its certificate: pass, never refuse.
        if verify_chain(&*self.verifier, peer.chain(), credentials.now).is_err()
            || !self.names(&peer.chain()[0])
        {
            return Outcome::Pass;
        }
        Outcome::User(authenticated(user(name, credentials.headers)))
    }

    fn names(&self, certificate: &[u8]) -> bool {
        if self.allowed_names.is_empty() {
            return true;
        }
        X509Certificate::from_der(certificate).is_ok_and(|(_, certificate)| {
            certificate
                .subject()
                .iter_common_name()
                .filter_map(|one| one.as_str().ok())
                .any(|name| self.allowed_names.iter().any(|allowed| allowed == name))
        })
    }
}

/// Takes what a front proxy says of the user out of a request.
pub(super) fn forget(headers: &mut HeaderMap) {
    let said: Vec<HeaderName> = headers
        .keys()
        .filter(|name| NAMES.contains(&name.as_str()) || name.as_str().starts_with(EXTRA_PREFIX))
        .cloned()
        .collect();
    for name in said {
        headers.remove(name);
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn user(name: String, headers: &HeaderMap) -> UserInfo {
    let values = |name: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .map(str::to_owned)
            .collect()
    };
    let mut user = UserInfo {
        name,
        groups: values("x-remote-group"),
        ..UserInfo::default()
    };
    user.uid = text(headers, "x-remote-uid").unwrap_or_default();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            user.extra
                .insert(crate::impersonation::unescape(key), values(header.as_str()));
        }
    }
    user
}

impl Authenticator for RequestHeader {
    fn name(&self) -> &'static str {
        "request-header"
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(std::future::ready(self.identify(credentials)))
    }
}
