//! The flags of the serving certificates, as upstream's.

use anyhow::Context;
use apiserver_server::{SniCertificate, TlsOptions};
use clap::Args;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct ServingArguments {
    /// Further names and addresses in the server's own serving certificate
    #[arg(long, value_delimiter = ',')]
    pub(crate) tls_san: Vec<String>,
    /// Certificate in PEM to serve in place of the server's own, its authorities behind it; read again as it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Private key in PEM of --tls-cert-file: RSA, ECDSA P-256 or P-384, or Ed25519; read again as it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Certificate and key for clients that request certain names; repeatable: FILE,FILE or FILE,FILE:*.foo.com,foo.com
    ///
    /// Without names, those in the certificate. Names without a wildcard go before names with one, names that are listed here
    /// before names in a certificate, earlier certificates before later ones. The files are read again as they change.
    #[arg(long, value_name = "CERT,KEY[:NAMES]")]
    pub(crate) tls_sni_cert_key: Vec<SniCertificate>,
    /// Lowest version of TLS: VersionTLS12 or VersionTLS13
    #[arg(long, default_value = "VersionTLS12")]
    tls_min_version: String,
    /// Cipher suites of TLS 1.2 by their names in Go, comma separated; those of TLS 1.3 are always offered
    #[arg(long, value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Bundle in PEM of authorities that pods trust besides the cluster's own, in every kube-root-ca.crt
    ///
    /// Needed where --tls-cert-file replaces the server's own certificate and pods reach the server.
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
}

impl ServingArguments {
    pub(crate) fn tls(&self) -> TlsOptions {
        TlsOptions {
            min_version: self.tls_min_version.clone(),
            cipher_suites: self.tls_cipher_suites.clone(),
        }
    }

    /// Authorities that pods trust besides the cluster's own.
    pub(crate) fn root_ca(&self) -> anyhow::Result<String> {
        let Some(path) = &self.root_ca_file else {
            return Ok(String::new());
        };
        let said = || format!("--root-ca-file {}", path.display());
        let text = std::fs::read_to_string(path).with_context(said)?;
        apiserver_server::authorities_of(&text).with_context(said)
    }
}
