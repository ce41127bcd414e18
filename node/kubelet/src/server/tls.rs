//! The serving certificate and whose client certificates are believed.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

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
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| ServerError::Tls(format!("{}: {error}", path.display())))?;
            builder.with_client_cert_verifier(verifier)
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

/// A certificate of our own making, as upstream's kubelet has without one: encrypted, vouched for by nobody.
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
