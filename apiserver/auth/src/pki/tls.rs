//! rustls configurations of our certificates.

use super::{Identity, PkiError, ServingIdentity};
use machinery_x509::{RequestClientCertificate, ServerCheck};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// HTTP/2 and 1.1 over TLS 1.2 or 1.3, with optional client certificates.
pub fn server_config(
    serving: Arc<ServingIdentity>,
    client_authorities: &[CertificateDer<'static>],
) -> Result<ServerConfig, PkiError> {
    let provider = Arc::clone(&serving.provider);
    let ask = RequestClientCertificate::new(client_authorities, provider.signature_verification_algorithms);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(ask))
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A client that trusts one authority and shows a certificate.
pub fn client_config(
    authority: &CertificateDer<'_>,
    identity: &Identity,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, PkiError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    Ok(ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(identity.chain().to_vec(), identity.key())?)
}

/// A client that trusts any server and shows nothing of ours: upstream's towards pods, services and what else listens on
/// a node.
pub fn unverified_client_config(provider: &Arc<CryptoProvider>) -> Result<ClientConfig, PkiError> {
    let any = ServerCheck::any_certificate(provider.signature_verification_algorithms);
    Ok(ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(any))
        .with_no_client_auth())
}
