//! Kubeconfig files of our own making: one cluster, one user with a certificate, one context.
//!
//! They trust the cluster's own authority, and so ask for the server's own certificate by a name that it has whatever else
//! the operator serves (`tls-server-name`).

use super::{Identity, LOOPBACK_CLIENT_NAME, PkiError, write_private};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// What one file says.
#[derive(Debug, Clone, Copy)]
pub struct Kubeconfig<'a> {
    /// `https://host:port`.
    pub server: &'a str,
    pub authority_pem: &'a str,
    pub cluster: &'a str,
    pub user: &'a str,
    pub identity: &'a Identity,
}

impl Kubeconfig<'_> {
    pub fn render(&self) -> String {
        let Self {
            server,
            authority_pem,
            cluster,
            user,
            identity,
        } = self;
        let context = format!("{user}@{cluster}");
        let authority = STANDARD.encode(authority_pem);
        let certificate = STANDARD.encode(identity.certificate_pem());
        let key = STANDARD.encode(identity.key_pem());
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n    \
             tls-server-name: {LOOPBACK_CLIENT_NAME}\n    certificate-authority-data: {authority}\nusers:\n- name: {user}\n  user:\n    \
             client-certificate-data: {certificate}\n    client-key-data: {key}\ncontexts:\n- name: {context}\n  \
             context:\n    cluster: {cluster}\n    user: {user}\ncurrent-context: {context}\npreferences: {{}}\n"
        )
    }

    pub fn write(&self, path: &Path) -> Result<(), PkiError> {
        write_private(path, &self.render())
    }
}
