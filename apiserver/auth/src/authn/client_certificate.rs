//! Client certificates: the common name is the user, the organizations are the groups.
//!
//! The TLS layer asks for a certificate and checks only that the peer holds its key; the chain is verified here, once
//! per connection, so that a bad certificate is answered with 401 and not with a broken handshake.

use super::{Authenticator, AuthnFuture, Credentials, Outcome, Refusal, authenticated};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use machinery_meta::UserInfo;
use ring::digest;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, crypto::CryptoProvider};
use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Upstream's object identifier for a user's uid in a subject.
const UID_OID: &str = "1.3.6.1.4.1.57683.2";

/// The chain a connection presented, and who it was found to be.
#[derive(Debug)]
pub struct PeerCertificate {
    chain: Vec<CertificateDer<'static>>,
    verified: OnceLock<Result<Verified, Refusal>>,
}

#[derive(Debug, Clone)]
struct Verified {
    user: UserInfo,
    not_after: Timestamp,
}

impl PeerCertificate {
    /// `None` when the peer sent no certificate.
    pub fn new(chain: &[CertificateDer<'_>]) -> Option<Self> {
        if chain.is_empty() {
            return None;
        }
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        Some(Self {
            chain,
            verified: OnceLock::new(),
        })
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// Verifies chains against authorities that can be replaced while running.
pub struct ClientCertificates {
    verifier: ArcSwap<Arc<dyn ClientCertVerifier>>,
}

impl fmt::Debug for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificates").finish_non_exhaustive()
    }
}

/// The authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("client certificate authorities")]
pub struct AuthoritiesError(#[source] Box<dyn std::error::Error + Send + Sync>);

pub(super) fn verifier(
    authorities: &[CertificateDer<'_>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone().into_owned())
            .map_err(|error| AuthoritiesError(error.into()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| AuthoritiesError(error.into()))
}

impl ClientCertificates {
    pub fn new(
        authorities: &[CertificateDer<'_>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthoritiesError> {
        Ok(Self {
            verifier: ArcSwap::from_pointee(verifier(authorities, provider)?),
        })
    }

    /// From now on these authorities count. Connections that were verified keep their identity.
    pub fn replace(
        &self,
        authorities: &[CertificateDer<'_>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<(), AuthoritiesError> {
        self.verifier.store(Arc::new(verifier(authorities, provider)?));
        Ok(())
    }

    fn identify(&self, peer: &PeerCertificate, now: Timestamp) -> Outcome {
        let verified = peer
            .verified
            .get_or_init(|| verify(&***self.verifier.load(), peer.chain(), now));
        match verified {
            Err(refusal) => Outcome::Refused(refusal.clone()),
            Ok(verified) if verified.not_after < now => {
                Outcome::Refused(Refusal("the client certificate has expired".to_owned()))
            }
            Ok(verified) => Outcome::User(authenticated(verified.user.clone())),
        }
    }
}

pub(super) fn verify_chain(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<(), Refusal> {
    let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    let (leaf, rest) = chain
        .split_first()
        .ok_or_else(|| Refusal("no client certificate".to_owned()))?;
    verifier
        .verify_client_cert(leaf, rest, UnixTime::since_unix_epoch(since))
        .map(|_| ())
        .map_err(|error| Refusal(format!("verifying the client certificate: {error}")))
}

fn verify(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Result<Verified, Refusal> {
    verify_chain(verifier, chain, now)?;
    let leaf = &chain[0];
    let unreadable = |_| Refusal("the client certificate cannot be read".to_owned());
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(unreadable)?;
    let subject = certificate.subject();
    // Go takes the last one, and so do those that check requests for certificates.
    let name = subject
        .iter_common_name()
        .last()
        .and_then(|one| one.as_str().ok())
        .unwrap_or_default();
    if name.is_empty() {
        // Upstream's common name conversion passes on such a certificate.
        return Err(Refusal("the client certificate names no user".to_owned()));
    }
    let groups = subject
        .iter_organization()
        .filter_map(|one| one.as_str().ok())
        .map(str::to_owned)
        .collect();
    let uid = subject
        .iter_attributes()
        .find(|attribute| attribute.attr_type().to_id_string() == UID_OID)
        .and_then(|attribute| attribute.as_str().ok())
        .unwrap_or_default();
    let mut user = UserInfo {
        name: name.to_owned(),
        uid: uid.to_owned(),
        groups,
        ..UserInfo::default()
    };
    user.extra.insert(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![credential_id(leaf)],
    );
    let not_after =
        Timestamp::from_second(certificate.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
    Ok(Verified { user, not_after })
}

fn credential_id(certificate: &[u8]) -> String {
    let mut id = "X509SHA256=".to_owned();
    for byte in digest::digest(&digest::SHA256, certificate).as_ref() {
        let _ = write!(id, "{byte:02x}");
    }
    id
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
