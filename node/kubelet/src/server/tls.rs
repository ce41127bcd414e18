//! The serving certificate, and the request for the client's.

use std::path::Path;
use std::sync::Arc;

use machinery_x509::RequestClientCertificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ServerError;
use crate::config::KubeletConfig;

pub(super) fn server_config(config: &KubeletConfig) -> Result<rustls::ServerConfig, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = match &config.tls {
        Some((certificate, key)) => (certificates(certificate)?, read_key(key)?),
        None => self_signed(config)?,
    };
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
    let mut tls = builder.with_single_cert(chain, key).map_err(failed)?;
    // Upgrades need HTTP/1.1.
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tls)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let failed = |error: &dyn std::fmt::Display| ServerError::Tls(format!("{}: {error}", path.display()));
    let list = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    list.collect::<Result<_, _>>().map_err(|error| failed(&error))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, ServerError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| ServerError::Tls(format!("{}: {error}", path.display())))
}

/// A self-signed certificate, as upstream's kubelet makes without one: encrypted, but not authenticated.
fn self_signed(
    config: &KubeletConfig,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), ServerError> {
    let names = vec![
        config.node_name.clone(),
        config.node_ip.to_string(),
        "127.0.0.1".to_string(),
    ];
    let made =
        rcgen::generate_simple_self_signed(names).map_err(|error| ServerError::Tls(error.to_string()))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|error| ServerError::Tls(error.to_string()))?;
    Ok((vec![made.cert.der().clone()], key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    /// Upstream's `tls.RequestClientCert`: requests check the certificate, and a token may still authenticate them.
    #[tokio::test]
    async fn handshake_takes_certificates_that_no_authority_vouches_for() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let (serving, client, authority) = (made("localhost"), made("stranger"), made("authority"));
        let config = KubeletConfig {
            tls: Some((
                write("kubelet.crt", serving.cert.pem()),
                write("kubelet.key", serving.signing_key.serialize_pem()),
            )),
            client_ca: Some(write("client-ca.crt", authority.cert.pem())),
            ..KubeletConfig::for_data_dir(folder.path().to_owned())
        };
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&config).unwrap()));
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
