//! The serving certificate, which is followed while the agent runs, and the request for the client's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use machinery_runtime::Runtime;
use machinery_x509::{PeerCertificate, RequestClientCertificate};
use parking_lot::{Mutex, RwLock};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ServerError;
use crate::config::KubeletConfig;

/// Interval of reads of the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// The same while the cluster has not signed the first one: until then no client can trust this server.
const AWAITED_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// A certificate that has not come by then waits for a person's approval, and is looked for as a changed one is.
const AWAITED_SOON: Duration = Duration::from_secs(60);
/// No chain of certificates is longer.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The certificate as it is now; a change counts for the next connection.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    files: Option<(PathBuf, PathBuf)>,
    current: RwLock<Arc<CertifiedKey>>,
    /// Contents that were read last, used or not.
    seen: Mutex<Option<[Vec<u8>; 2]>>,
    provider: Arc<CryptoProvider>,
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

impl ServingCertificate {
    fn open(config: &KubeletConfig) -> Result<Arc<Self>, ServerError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let seen = match config.tls.as_ref().map(|files| (files, read(files))) {
            None => None,
            // One that is requested of the cluster may come later.
            Some((_, Err(error))) if error.kind() == std::io::ErrorKind::NotFound && config.tls_awaited => {
                None
            }
            Some((files, Err(error))) => {
                return Err(ServerError::Tls(format!("{}: {error}", files.0.display())));
            }
            Some((_, Ok(contents))) => Some(contents),
        };
        let current = match &seen {
            Some(contents) => certified(contents, &provider)?,
            None => self_signed(config, &provider)?,
        };
        Ok(Arc::new(Self {
            files: config.tls.clone(),
            current: RwLock::new(Arc::new(current)),
            seen: Mutex::new(seen),
            provider,
        }))
    }

    /// Follows the files for ever. While they cannot be used, the certificate before stays.
    pub(crate) async fn follow(self: Arc<Self>, runtime: Runtime) {
        let began = runtime.monotonic();
        loop {
            let waited = runtime.monotonic().saturating_sub(began);
            runtime.sleep(self.look_interval(waited)).await;
            let own = Arc::clone(&self);
            match runtime.blocking(move || own.look()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("a changed serving certificate is in use"),
                Ok(Err(error)) => {
                    tracing::error!(%error, "serving certificate not reloaded, keeping the previous one");
                }
                Err(error) => tracing::error!(%error, "reading the serving certificate failed"),
            }
        }
    }

    /// Time at which it expires, where it can be read.
    pub(super) fn not_after(&self) -> Option<Timestamp> {
        PeerCertificate::new(&self.current.read().cert)?.not_after()
    }

    fn look_interval(&self, waited: Duration) -> Duration {
        let is_awaited = self.files.is_some() && self.seen.lock().is_none();
        match is_awaited && waited < AWAITED_SOON {
            true => AWAITED_LOOK_INTERVAL,
            false => LOOK_INTERVAL,
        }
    }

    /// Reports whether another one counts from now on.
    fn look(&self) -> Result<bool, ServerError> {
        // They may be away for a moment while they are replaced.
        let Some(Ok(contents)) = self.files.as_ref().map(read) else {
            return Ok(false);
        };
        let mut seen = self.seen.lock();
        if seen.as_ref() == Some(&contents) {
            return Ok(false);
        }
        let key = certified(&contents, &self.provider);
        *seen = Some(contents);
        *self.current.write() = Arc::new(key?);
        Ok(true)
    }
}

pub(super) fn server_config(
    config: &KubeletConfig,
) -> Result<(rustls::ServerConfig, Arc<ServingCertificate>), ServerError> {
    let serving = ServingCertificate::open(config)?;
    let provider = Arc::clone(&serving.provider);
    let failed = |error: rustls::Error| ServerError::Tls(error.to_string());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(failed)?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        // Names no authorities: they may change, and clients keep certificates of others to themselves.
        Some(_) => {
            let request = RequestClientCertificate::new(&[], provider.signature_verification_algorithms);
            builder.with_client_cert_verifier(Arc::new(request))
        }
    };
    let mut tls = builder.with_cert_resolver(Arc::clone(&serving) as Arc<dyn ResolvesServerCert>);
    // Upgrades need HTTP/1.1.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((tls, serving))
}

fn read((certificate, key): &(PathBuf, PathBuf)) -> std::io::Result<[Vec<u8>; 2]> {
    Ok([read_bounded(certificate)?, read_bounded(key)?])
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn failed(error: impl std::fmt::Display) -> ServerError {
    ServerError::Tls(error.to_string())
}

fn certified(contents: &[Vec<u8>; 2], provider: &CryptoProvider) -> Result<CertifiedKey, ServerError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&contents[0]).collect();
    let key = PrivateKeyDer::from_pem_slice(&contents[1]).map_err(failed)?;
    CertifiedKey::from_der(chain.map_err(failed)?, key, provider).map_err(failed)
}

/// A self-signed certificate, as upstream's kubelet makes without one: encrypted, but not authenticated.
fn self_signed(config: &KubeletConfig, provider: &CryptoProvider) -> Result<CertifiedKey, ServerError> {
    let names = vec![
        config.node_name.clone(),
        config.node_ip.to_string(),
        "127.0.0.1".to_string(),
    ];
    let made = rcgen::generate_simple_self_signed(names).map_err(failed)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(failed)?;
    CertifiedKey::from_der(vec![made.cert.der().clone()], key, provider).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    type Made = rcgen::CertifiedKey<rcgen::KeyPair>;

    fn made(name: &str) -> Made {
        rcgen::generate_simple_self_signed([name.to_owned()]).unwrap()
    }

    fn put(folder: &Path, certificate: &Made) -> (PathBuf, PathBuf) {
        let paths = (folder.join("kubelet.crt"), folder.join("kubelet.key"));
        std::fs::write(&paths.0, certificate.cert.pem()).unwrap();
        std::fs::write(&paths.1, certificate.signing_key.serialize_pem()).unwrap();
        paths
    }

    #[test]
    fn serving_certificate_that_changes_is_served_without_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let paths = (
            folder.path().join("kubelet.crt"),
            folder.path().join("kubelet.key"),
        );
        let mut config = KubeletConfig {
            tls: Some(paths.clone()),
            node_name: "n1".to_owned(),
            ..KubeletConfig::for_data_dir(folder.path().to_owned())
        };
        assert!(ServingCertificate::open(&config).is_err(), "a given one is there");
        config.tls_awaited = true;
        let serving = ServingCertificate::open(&config).unwrap();
        let served = || serving.current.read().cert[0].clone();
        let first = served();
        assert!(!serving.look().unwrap());
        assert_eq!(serving.look_interval(AWAITED_SOON), LOOK_INTERVAL);
        let waited = AWAITED_SOON - AWAITED_LOOK_INTERVAL;
        assert_eq!(serving.look_interval(waited), AWAITED_LOOK_INTERVAL);
        let (one, other) = (made("one"), made("other"));
        put(folder.path(), &one);
        assert!(serving.look().unwrap());
        assert_eq!(&served(), one.cert.der());
        assert_ne!(served(), first);
        assert_eq!(serving.look_interval(waited), LOOK_INTERVAL);
        assert!(!serving.look().unwrap(), "it is the same");
        std::fs::write(&paths.1, other.signing_key.serialize_pem()).unwrap();
        assert!(serving.look().is_err(), "a key without its certificate");
        assert!(!serving.look().unwrap(), "one problem is told once");
        assert_eq!(&served(), one.cert.der());
        put(folder.path(), &other);
        assert!(serving.look().unwrap());
        assert_eq!(&served(), other.cert.der());
        std::fs::remove_file(&paths.0).unwrap();
        assert!(!serving.look().unwrap());
        assert_eq!(&served(), other.cert.der(), "the one before stays");
    }

    /// Upstream's `tls.RequestClientCert`: requests check the certificate, and a token may still authenticate them.
    #[tokio::test]
    async fn handshake_takes_certificates_that_no_authority_vouches_for() {
        let folder = tempfile::tempdir().unwrap();
        let (serving, client, authority) = (made("localhost"), made("stranger"), made("authority"));
        let client_ca = folder.path().join("client-ca.crt");
        std::fs::write(&client_ca, authority.cert.pem()).unwrap();
        let config = KubeletConfig {
            tls: Some(put(folder.path(), &serving)),
            client_ca: Some(client_ca),
            ..KubeletConfig::for_data_dir(folder.path().to_owned())
        };
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&config).unwrap().0));
        let mut roots = RootCertStore::empty();
        roots.add(serving.cert.der().clone()).unwrap();
        let key = PrivateKeyDer::try_from(client.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![client.cert.der().clone()], key)
            .unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(tls));
        let (accepted, connected) = tokio::join!(acceptor.accept(far), connector.connect(name, near));
        connected.unwrap();
        let presented = accepted
            .unwrap()
            .get_ref()
            .1
            .peer_certificates()
            .map(<[_]>::to_vec);
        assert_eq!(presented, Some(vec![client.cert.der().clone()]));
    }
}
