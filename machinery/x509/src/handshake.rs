//! The part of a TLS handshake that requests a certificate.

use crate::certificate::Certificate;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, SignatureScheme,
};

/// Requests a client certificate and checks that the peer holds its key, as Go's `RequestClientCert` does: the authenticator
/// verifies its chain, so that a bad one is answered with a reason instead of a broken handshake. Bytes that
/// are no certificate end the handshake, here and in Go.
#[derive(Debug)]
pub struct RequestClientCertificate {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RequestClientCertificate {
    /// Names the authorities to clients, which choose among their certificates by them.
    pub fn new(authorities: &[CertificateDer<'_>], algorithms: WebPkiSupportedAlgorithms) -> Self {
        let name = |one: &CertificateDer<'_>| {
            let own = Certificate::read(one).ok()?;
            let mut subject = crate::der::Reader::new(own.subject);
            Some(DistinguishedName::in_sequence(subject.element()?.content))
        };
        Self {
            hints: authorities.iter().filter_map(name).collect(),
            algorithms,
        }
    }
}

fn read<'a>(der: &'a CertificateDer<'_>) -> Result<Certificate<'a>, Error> {
    Certificate::read(der).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))
}

impl ClientCertVerifier for RequestClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        read(leaf)?;
        rest.iter().try_for_each(|one| read(one).map(drop))?;
        Ok(ClientCertVerified::assertion())
    }

    // `verify_tls12_signature` of rustls reads the certificate with `webpki`, which takes neither version 1 nor critical extensions
    // that it does not know.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = read(certificate)?;
        let of_scheme = self
            .algorithms
            .mapping
            .iter()
            .find(|(own, _)| *own == signed.scheme);
        let (_, algorithms) = of_scheme.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let (kind, key) = certificate
            .key_parts()
            .map_err(|_| CertificateError::BadEncoding)?;
        let of_key = algorithms
            .iter()
            .find(|own| own.public_key_alg_id().as_ref() == kind);
        let is_valid =
            of_key.is_some_and(|own| own.verify_signature(key, message, signed.signature()).is_ok());
        match is_valid {
            true => Ok(HandshakeSignatureValid::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::BadSignature)),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(read(certificate)?.key_info);
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
