//! Authorities of the certificate of a webhook or an API extension, and what Go accepts beyond `webpki`: a certificate that is in the bundle itself, though it
//! says of itself that it is an authority (as self-signed ones do).

use arc_swap::ArcSwap;
use rustls::client::ResolvesClientCert;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::io;
use std::sync::{Arc, OnceLock};

/// Files in which this machine's authorities may be, in Go's order.
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A configuration of TLS with the authorities of one server.
#[derive(Debug, Clone)]
pub(crate) struct Trust(Arc<ClientConfig>);

/// Certificates that a server may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trusted<'a> {
    /// Those of the authorities of a bundle in PEM, or of this machine's where it is empty.
    Bundle(&'a [u8]),
    /// Any (`insecureSkipTLSVerify`).
    Any,
}

impl Trust {
    /// Trusts the certificates of a bundle, and shows none.
    pub(crate) fn new(bundle: &[u8]) -> Result<Self, String> {
        Self::build(Trusted::Bundle(bundle), None)
    }

    /// The same, and shows a certificate of ours.
    pub(crate) fn showing(trusted: Trusted<'_>, identity: &Arc<ClientIdentity>) -> Result<Self, String> {
        Self::build(trusted, Some(Arc::clone(identity)))
    }

    fn build(trusted: Trusted<'_>, identity: Option<Arc<ClientIdentity>>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match trusted {
            Trusted::Any => Verifier {
                takes_any: true,
                ..Verifier::new(Vec::new(), &provider)?
            },
            Trusted::Bundle(bundle) => Verifier::new(roots(bundle)?, &provider)?,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            Some(identity) => config.with_client_cert_resolver(identity),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

/// A client certificate of this server; a renewed one is shown from the next connection on.
#[derive(Debug)]
pub struct ClientIdentity(ArcSwap<CertifiedKey>);

impl ClientIdentity {
    /// # Errors
    /// The key is not the certificate's, or none that can sign.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self(ArcSwap::new(certified(chain, key)?))))
    }

    /// # Errors
    /// As [`ClientIdentity::new`].
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), Error> {
        self.0.store(certified(chain, key)?);
        Ok(())
    }
}

impl ResolvesClientCert for ClientIdentity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, Error> {
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new)
}

fn roots(bundle: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    if bundle.trim_ascii().is_empty() {
        return Ok(system_roots().to_vec());
    }
    match certificates(bundle) {
        none if none.is_empty() => Err("unable to parse bytes as PEM block".to_owned()),
        roots => Ok(roots),
    }
}

/// The certificates of a text; what is none is passed over, as Go does.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect()
}

fn system_roots() -> &'static [CertificateDer<'static>] {
    static ROOTS: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut texts = SYSTEM_FILES.iter().filter_map(|path| std::fs::read(path).ok());
        texts.next().map(|text| certificates(&text)).unwrap_or_default()
    })
}

#[derive(Debug)]
struct Verifier {
    roots: Vec<CertificateDer<'static>>,
    /// Without any authority nothing is accepted.
    inner: Option<Arc<WebPkiServerVerifier>>,
    takes_any: bool,
    schemes: Vec<SignatureScheme>,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl Verifier {
    fn new(
        roots: Vec<CertificateDer<'static>>,
        provider: &Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let inner = match store.is_empty() {
            true => None,
            false => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
                Some(builder.build().map_err(|error| error.to_string())?)
            }
        };
        Ok(Self {
            roots,
            inner,
            takes_any: false,
            schemes: provider.signature_verification_algorithms.supported_schemes(),
            provider: Arc::clone(provider),
        })
    }

    /// `webpki` looks at the dates first, and says this of an authority in place of a server.
    fn is_root_itself(&self, leaf: &CertificateDer<'_>, error: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(other)) = error else {
            return false;
        };
        format!("{other:?}").contains("CaUsedAsEndEntity") && self.roots.iter().any(|root| root == leaf)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.takes_any {
            return Ok(ServerCertVerified::assertion());
        }
        let Some(inner) = &self.inner else {
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        match inner.verify_server_cert(leaf, rest, name, ocsp, now) {
            Err(error) if self.is_root_itself(leaf, &error) => {
                verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// A failed handshake in Go's words, where it has some.
pub(crate) fn handshake_error_text(error: &io::Error) -> String {
    let own = error.get_ref().and_then(|own| own.downcast_ref::<Error>());
    let Some(Error::InvalidCertificate(why)) = own else {
        return error.to_string();
    };
    let why = match why {
        // An authority of the same name with another key is as unknown.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = match presented.is_empty() {
                true => "any names".to_owned(),
                false => presented.join(", "),
            };
            let (is, names) = match presented.is_empty() {
                true => ("is not valid for", names),
                false => ("is valid for", names),
            };
            let (but, expected) = match presented.is_empty() {
                true => ("but wanted to match", expected.to_str()),
                false => ("not", expected.to_str()),
            };
            format!("certificate {is} {names}, {but} {expected}")
        }
        other => format!("{other:?}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}
