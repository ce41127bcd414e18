//! Client certificates: the common name is the user, the organizations are the groups.
//!
//! The TLS layer asks for a certificate and checks only that the peer holds its key; the chain is verified here, so that
//! a bad certificate is answered with 401 and not with a broken handshake.

use super::authorities::{Authorities, AuthoritiesError, Kept};
use super::{Authenticator, AuthnFuture, Credentials, Outcome, Refusal, authenticated};
use jiff::Timestamp;
use machinery_meta::UserInfo;
use ring::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use std::fmt::Write as _;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

/// Upstream's object identifier for a user's uid in a subject.
const UID_OID: &str = "1.3.6.1.4.1.57683.2";

/// The chain a connection presented, and whom it was found to name.
#[derive(Debug)]
pub struct PeerCertificate {
    chain: Vec<CertificateDer<'static>>,
    as_client: Kept<Verified>,
    /// The common name of a front proxy.
    pub(super) as_proxy: Kept<String>,
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
            as_client: Kept::default(),
            as_proxy: Kept::default(),
        })
    }

    /// The peer's own certificate.
    pub fn leaf(&self) -> &[u8] {
        self.chain.first().map_or(&[], AsRef::as_ref)
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// Verifies chains against authorities that can be replaced while running.
#[derive(Debug)]
pub struct ClientCertificates(Authorities);

impl ClientCertificates {
    pub fn new(
        authorities: &[CertificateDer<'static>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, AuthoritiesError> {
        Authorities::new(authorities.to_vec(), provider).map(Self)
    }

    /// From now on these authorities count, for connections that are open too.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), AuthoritiesError> {
        self.0.replace(authorities.to_vec())
    }

    pub fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.0.certificates()
    }

    fn identify(&self, peer: &PeerCertificate, now: Timestamp) -> Outcome {
        let verified = self.0.verified(peer.chain(), &peer.as_client, now, read);
        match verified {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(verified) if verified.not_after < now => {
                Outcome::Refused(Refusal::new("the client certificate has expired"))
            }
            Ok(verified) => Outcome::User(authenticated(verified.user)),
        }
    }
}

/// The common name of a subject. Go takes the last one, and so do those that check requests for certificates.
pub(super) fn common_name<'a>(subject: &'a X509Name<'_>) -> &'a str {
    let last = subject.iter_common_name().last();
    last.and_then(|one| one.as_str().ok()).unwrap_or_default()
}

fn read(leaf: &[u8]) -> Result<Verified, Refusal> {
    let unreadable = |_| Refusal::new("the client certificate cannot be read");
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(unreadable)?;
    let subject = certificate.subject();
    let name = common_name(subject);
    if name.is_empty() {
        // Upstream's common name conversion passes on such a certificate.
        return Err(Refusal::new("the client certificate names no user"));
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

#[cfg(test)]
mod tests;
