//! Certificates that the cluster's authority makes for approved signing requests (upstream's `pkg/controller/certificates/authority`).

use super::Authority;
use jiff::{SignedDuration, Timestamp};
use machinery_x509::{
    CertificateRequest, Issue, IssuingAlgorithm, PeerCertificate, RequestError, UnknownUsages, Usages,
};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, SigningKey,
};
use std::time::Duration;

/// Clocks of others may be behind by so much. Always below the shortest life that a request may name.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// A certificate of a shorter life has all of it after now.
const SHORT: SignedDuration = SignedDuration::from_hours(8);

/// No certificate can be made for the request.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("unable to parse certificate request")]
    Request(#[from] RequestError),
    #[error(transparent)]
    Usages(#[from] UnknownUsages),
    #[error("refusing to sign a certificate that expired in the past")]
    AuthorityExpired,
    #[error("the certificate of the authority cannot be read")]
    Authority,
    #[error("the key of the authority is of a kind that signs no certificates here")]
    Key,
    #[error("failed to sign certificate")]
    Signing(#[from] rcgen::Error),
}

/// An approved certificate request.
#[derive(Debug, Clone, Copy)]
pub struct ApprovedRequest<'a> {
    /// In PEM.
    pub request: &'a [u8],
    /// The API's words.
    pub usages: &'a [String],
    /// The authority's own end may come before.
    pub lifetime: Duration,
}

impl Authority {
    /// Signs a certificate in PEM for an approved request; `serial` is random.
    ///
    /// # Errors
    /// The request, its usages or the authority are not fit for it.
    pub fn issue(
        &self,
        approved: &ApprovedRequest<'_>,
        serial: [u8; 16],
        now: Timestamp,
    ) -> Result<String, IssueError> {
        let request = CertificateRequest::from_pem(approved.request)?;
        let authority = self.certificate();
        let peer = PeerCertificate::new(std::slice::from_ref(authority));
        let end = peer
            .and_then(|own| own.not_after())
            .ok_or(IssueError::Authority)?;
        let (not_before, not_after) = validity(approved.lifetime, now, end)?;
        let key = self.key();
        let issue = Issue {
            request: &request,
            usages: &Usages::of(approved.usages)?,
            serial,
            not_before,
            not_after,
            authority,
            algorithm: algorithm(key)?,
        };
        let to_be_signed = issue.to_be_signed().map_err(|_| IssueError::Authority)?;
        let signature = key.sign(&to_be_signed)?;
        let certificate = pem::Pem::new("CERTIFICATE", issue.signed(&to_be_signed, &signature));
        let form = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        Ok(pem::encode_config(&certificate, form))
    }
}

fn algorithm(key: &KeyPair) -> Result<IssuingAlgorithm, IssueError> {
    let known = [
        (&PKCS_ECDSA_P256_SHA256, IssuingAlgorithm::EcdsaSha256),
        (&PKCS_ECDSA_P384_SHA384, IssuingAlgorithm::EcdsaSha384),
        (&PKCS_ED25519, IssuingAlgorithm::Ed25519),
        (&PKCS_RSA_SHA256, IssuingAlgorithm::RsaSha256),
    ];
    let own = known.into_iter().find(|(known, _)| *known == key.algorithm());
    own.map(|(_, own)| own).ok_or(IssueError::Key)
}

/// The first and the last moment of a certificate by an authority that ends at `end`.
fn validity(
    lifetime: Duration,
    now: Timestamp,
    end: Timestamp,
) -> Result<(Timestamp, Timestamp), IssueError> {
    let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
    let own = match lifetime < SHORT {
        true => lifetime,
        false => lifetime.saturating_sub(BACKDATE),
    };
    let not_before = now.saturating_sub(BACKDATE).unwrap_or(now);
    let not_after = now.saturating_add(own).unwrap_or(Timestamp::MAX).min(end);
    match now < end {
        true => Ok((not_before, not_after)),
        false => Err(IssueError::AuthorityExpired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(lifetime_seconds: u64, end: &str, expected: Option<(&str, &str)>) {
        let found = validity(
            Duration::from_secs(lifetime_seconds),
            at("2026-11-28T12:00:00Z"),
            at(end),
        );
        let expected = expected.map(|(first, last)| (at(first), at(last)));
        assert_eq!(found.ok(), expected);
    }

    #[test]
    fn certificates_of_requests_are_backdated_and_end_with_their_authority() {
        let (long, short) = ("2036-01-01T00:00:00Z", "2026-11-28T13:00:00Z");
        check(
            3_600,
            long,
            Some(("2026-11-28T11:55:00Z", "2026-11-28T13:00:00Z")),
        );
        check(
            8 * 3_600,
            long,
            Some(("2026-11-28T11:55:00Z", "2026-11-28T19:55:00Z")),
        );
        check(8 * 3_600, short, Some(("2026-11-28T11:55:00Z", short)));
        check(8 * 3_600, "2026-11-28T12:00:00Z", None);
    }

    #[test]
    fn approved_request_becomes_a_certificate_of_the_authority() {
        let now = at("2026-11-28T12:00:00Z");
        let pki = super::super::Pki::generate(&super::super::ServingNames::new(), now).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "anna");
        let key = KeyPair::generate().unwrap();
        let request = params.serialize_request(&key).unwrap().pem().unwrap();
        let approved = ApprovedRequest {
            request: request.as_bytes(),
            usages: &["client auth".to_owned()],
            lifetime: Duration::from_secs(86_400),
        };
        let issued = pki.cluster.issue(&approved, [7; 16], now).unwrap();
        let identity = super::super::Identity::from_pem(issued, key.serialize_pem()).unwrap();
        assert_eq!(identity.not_after().to_string(), "2026-11-29T11:55:00Z");
        assert!(pki.cluster.vouches_for(&identity, "anna", None, now));
        assert!(!pki.front_proxy.vouches_for(&identity, "anna", None, now));
        let unknown = ApprovedRequest {
            usages: &["fly".to_owned()],
            ..approved
        };
        assert!(pki.cluster.issue(&unknown, [7; 16], now).is_err());
    }
}
