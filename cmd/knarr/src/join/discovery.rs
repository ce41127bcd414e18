//! The cluster's authority, from the server's handshake: the server shows it behind its own certificate.
//!
//! Nothing is requested and nothing listens without a certificate for it: a node that has the hash recognizes the authority among
//! the certificates of an unknown server, and that server by a certificate of the authority in the name that only it has.

use super::arguments::Server;
use apiserver_server::pki::LOOPBACK_CLIENT_NAME;
use machinery_runtime::Runtime;
use machinery_x509::{ServerCheck, ShownChain, first_certificate_validity, public_key_pin};
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time for connection and handshake.
const WITHIN: Duration = Duration::from_secs(10);

/// The authority was not found.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    #[error("connecting to the server")]
    Connecting(#[source] std::io::Error),
    #[error("no answer from the server within {} s", WITHIN.as_secs())]
    Silent,
    #[error(
        "the server shows no authority with the hash of the token: it belongs to another cluster, or the connection is intercepted"
    )]
    Another,
    #[error("greeting the server")]
    Handshake(#[source] std::io::Error),
    #[error("setting up TLS")]
    Tls(#[from] Error),
}

impl DiscoveryError {
    /// Reports whether a server that starts later changes it.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Connecting(_) | Self::Silent)
    }
}

/// Reports whether the authority in PEM has this hash.
pub(super) fn is_of(pem: &str, hash: &str) -> bool {
    let own = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    own.and_then(|own| public_key_pin(&own)).as_deref() == Some(hash)
}

/// The authority in PEM that the server shows and that has this hash.
pub(super) async fn authority(
    server: &Server,
    hash: &str,
    runtime: &Runtime,
) -> Result<String, DiscoveryError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let found = Arc::new(Mutex::new(None));
    let config = pinning_config(hash, provider, Arc::clone(&found))?;
    let greeted = runtime.timeout(WITHIN, greet(server, config)).await;
    let greeted = greeted.map_err(|_| DiscoveryError::Silent)?;
    let found = found.lock().take();
    match (greeted, found) {
        (Ok(()), Some(found)) => Ok(found),
        (Err(error @ DiscoveryError::Handshake(_)), Some(_)) => Err(error),
        (Ok(()) | Err(DiscoveryError::Handshake(_)), _) => Err(DiscoveryError::Another),
        (Err(error), _) => Err(error),
    }
}

/// A client of the server that shows the authority with this hash, which it leaves in `found`.
fn pinning_config(
    hash: &str,
    provider: Arc<CryptoProvider>,
    found: Arc<Mutex<Option<String>>>,
) -> Result<ClientConfig, Error> {
    let (hash, own) = (hash.to_owned(), Arc::clone(&provider));
    let check = move |shown: &ShownChain<'_>| check_pinned(shown, &hash, &own, &found);
    let check = ServerCheck::new(provider.signature_verification_algorithms, check);
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_no_client_auth())
}

async fn greet(server: &Server, config: ClientConfig) -> Result<(), DiscoveryError> {
    let connected = TcpStream::connect((server.host.as_str(), server.port)).await;
    let stream = connected.map_err(DiscoveryError::Connecting)?;
    let name = ServerName::try_from(LOOPBACK_CLIENT_NAME).expect("it is a name");
    let connector = TlsConnector::from(Arc::new(config));
    let greeted = connector.connect(name, stream).await;
    greeted.map(drop).map_err(DiscoveryError::Handshake)
}

/// Takes the authority with this hash for the root of what a server shows; it is in `found` although it may not have signed
/// the server's certificate.
fn check_pinned(
    shown: &ShownChain<'_>,
    hash: &str,
    provider: &Arc<CryptoProvider>,
    found: &Mutex<Option<String>>,
) -> Result<(), Error> {
    let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let is_pinned = |own: &&CertificateDer<'_>| public_key_pin(own).as_deref() == Some(hash);
    let pinned = shown.rest.iter().find(is_pinned).ok_or(unknown)?;
    let authority = pinned.clone().into_owned();
    let pem = to_pem(&authority);
    if first_certificate_validity(pem.as_bytes()).is_none() {
        return Err(Error::InvalidCertificate(CertificateError::BadEncoding));
    }
    *found.lock() = Some(pem);
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = verifier
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    verifier
        .verify_server_cert(shown.leaf, shown.rest, shown.name, shown.ocsp_response, shown.now)
        .map(drop)
}

fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let block = pem::Pem::new("CERTIFICATE", certificate.as_ref());
    pem::encode_config(
        &block,
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_server::pki::{Pki, ServingNames};
    use rustls::ServerConfig;
    use tokio::net::TcpListener;

    fn pki(name: &str) -> Pki {
        let now = Runtime::real().now();
        Pki::generate(&ServingNames::from([name.to_owned()]), now).unwrap()
    }

    fn hash(pki: &Pki) -> String {
        public_key_pin(pki.cluster.certificate()).unwrap()
    }

    /// Greets a server that shows this certificate and, behind it, this authority.
    async fn found(serving: &Pki, shown: &Pki, wanted: &str) -> Result<String, DiscoveryError> {
        let mut chain = serving.serving.chain().to_vec();
        chain.push(shown.cluster.certificate().clone());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, serving.serving.key())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            drop(acceptor.accept(stream).await);
            std::future::pending::<()>().await;
        };
        let runtime = Runtime::real();
        tokio::select! {
            biased;
            found = authority(&server, wanted, &runtime) => found,
            () = serve => unreachable!("it serves for ever"),
        }
    }

    #[tokio::test]
    async fn authority_is_known_by_its_hash_and_the_server_by_the_authority() {
        let (own, other) = (pki(LOOPBACK_CLIENT_NAME), pki(LOOPBACK_CLIENT_NAME));
        let pem = found(&own, &own, &hash(&own)).await.unwrap();
        assert!(is_of(&pem, &hash(&own)) && !is_of(&pem, &hash(&other)));
        let another = found(&other, &other, &hash(&own)).await;
        assert!(matches!(another, Err(DiscoveryError::Another)), "{another:?}");
        // Any client has the authority's certificate; its key signed nothing for this server.
        let between = found(&other, &own, &hash(&own)).await;
        assert!(
            matches!(between, Err(DiscoveryError::Handshake(_))),
            "{between:?}"
        );
        // A node's certificate is of the authority, too, and has not the server's name.
        let node = pki("worker-1");
        let named = found(&node, &node, &hash(&node)).await;
        assert!(matches!(named, Err(DiscoveryError::Handshake(_))), "{named:?}");
    }
}
