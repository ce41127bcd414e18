//! Authorities of the certificate of a webhook or an API extension, and what Go accepts beyond `webpki`: a certificate that is in the bundle itself, though it
//! says of itself that it is an authority (as self-signed ones do).

use arc_swap::ArcSwap;
use machinery_x509::{SYSTEM_ROOT_FILES, ServerCheck, ShownChain};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, SignatureScheme};
use std::io;
use std::sync::{Arc, OnceLock};

/// Names of a certificate in an error.
const MAX_NAMES: usize = 10;

/// A configuration of TLS with the authorities of one server.
#[derive(Debug, Clone)]
pub(crate) struct Trust(Arc<ClientConfig>);

/// Certificates that a server may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trusted<'a> {
    /// Certificates of the authorities of a bundle in PEM, or of this machine's where it is empty.
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

    pub(crate) fn build(trusted: Trusted<'_>, identity: Option<Arc<ClientIdentity>>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let verifier: Arc<dyn ServerCertVerifier> = match trusted {
            Trusted::Any => Arc::new(ServerCheck::any_certificate(algorithms)),
            Trusted::Bundle(bundle) => {
                let authorities = Authorities::new(roots(bundle)?, &provider)?;
                Arc::new(ServerCheck::new(algorithms, move |shown: &ShownChain<'_>| {
                    authorities.check(shown)
                }))
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
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
        let mut texts = SYSTEM_ROOT_FILES
            .iter()
            .filter_map(|path| std::fs::read(path).ok());
        texts.next().map(|text| certificates(&text)).unwrap_or_default()
    })
}

/// The authorities of a bundle.
struct Authorities {
    roots: Vec<CertificateDer<'static>>,
    /// Without any authority nothing is accepted.
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl Authorities {
    fn new(roots: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        let verifier = match store.is_empty() {
            true => None,
            false => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
                Some(builder.build().map_err(|error| error.to_string())?)
            }
        };
        Ok(Self { roots, verifier })
    }

    fn check(&self, shown: &ShownChain<'_>) -> Result<(), Error> {
        let Some(verifier) = &self.verifier else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let verified =
            verifier.verify_server_cert(shown.leaf, shown.rest, shown.name, shown.ocsp_response, shown.now);
        match verified {
            Err(Error::InvalidCertificate(why))
                if is_authority(&why) && self.roots.iter().any(|root| root == shown.leaf) =>
            {
                verify_server_name(&ParsedCertificate::try_from(shown.leaf)?, shown.name)
            }
            verified => verified.map(drop),
        }
    }
}

/// `webpki` looks at the dates first, and says this of an authority in place of a server.
fn is_authority(why: &CertificateError) -> bool {
    matches!(why, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
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
                false => presented
                    .iter()
                    .take(MAX_NAMES)
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", "),
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
        own if is_authority(own) => {
            "certificate is that of an authority, and not one of the bundle itself".to_owned()
        }
        other => format!("{other:?}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}
