//! Authorities of a webhook's certificate, and what Go accepts beyond `webpki`: a certificate that is in the bundle itself, though it
//! says of itself that it is an authority (as self-signed ones do).

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
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

/// A configuration of TLS with the authorities of one webhook.
#[derive(Debug, Clone)]
pub(super) struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Trusts the certificates of a bundle, or this machine's where the bundle is empty.
    pub(super) fn new(bundle: &[u8]) -> Result<Self, String> {
        let roots = match bundle.trim_ascii().is_empty() {
            true => system_roots().to_vec(),
            false => certificates(bundle),
        };
        if roots.is_empty() && !bundle.trim_ascii().is_empty() {
            return Err("unable to parse bytes as PEM block".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new(roots, &provider)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
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
pub(super) fn handshake_error_text(error: &io::Error) -> String {
    let own = error.get_ref().and_then(|own| own.downcast_ref::<Error>());
    let Some(Error::InvalidCertificate(why)) = own else {
        return error.to_string();
    };
    let why = match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
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
