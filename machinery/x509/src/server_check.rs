//! A server's certificate in a handshake, judged by its caller.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::fmt;

/// Chain that a server shows, the name that its client requested, and the time.
#[derive(Debug)]
pub struct ShownChain<'a> {
    pub leaf: &'a CertificateDer<'a>,
    pub rest: &'a [CertificateDer<'a>],
    pub name: &'a ServerName<'a>,
    pub ocsp_response: &'a [u8],
    pub now: UnixTime,
}

/// Verifier that checks in each handshake that the server has the key of the certificate it shows, and leaves the
/// certificate to a function.
pub struct ServerCheck<F> {
    algorithms: WebPkiSupportedAlgorithms,
    check: F,
}

impl<F> ServerCheck<F> {
    /// A verifier by these algorithms; `check` says whether the certificate is the server's.
    pub fn new(algorithms: WebPkiSupportedAlgorithms, check: F) -> Self {
        Self { algorithms, check }
    }
}

impl ServerCheck<fn(&ShownChain<'_>) -> Result<(), Error>> {
    /// A verifier that takes any certificate whose key the server has.
    pub fn any_certificate(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self::new(algorithms, |_| Ok(()))
    }
}

impl<F> fmt::Debug for ServerCheck<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCheck").finish_non_exhaustive()
    }
}

impl<F> ServerCertVerifier for ServerCheck<F>
where
    F: Fn(&ShownChain<'_>) -> Result<(), Error> + Send + Sync,
{
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = ShownChain {
            leaf,
            rest,
            name,
            ocsp_response,
            now,
        };
        (self.check)(&shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
