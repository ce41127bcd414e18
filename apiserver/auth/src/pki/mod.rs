//! The cluster's own certificate authorities, keys and certificates.
//!
//! Under `<data-dir>/pki`, names as kubeadm's: `ca` signs serving and client certificates, `front-proxy-ca` those the
//! aggregation layer shows, `sa.key` signs service account tokens. Files are written 0600 and complete or not at all;
//! what is there is kept, except that a leaf is recreated once a third of its life is left or its names changed.
//! A cluster in memory has the same without files; the servers of one cluster share the authorities and `sa.key`. All keys are ECDSA P-256, which take no time to make.

mod authority;
mod files;
mod given;
mod identity;
mod issue;
mod serving;
mod shared;
mod tls;

pub use authority::Authority;
pub use files::write_private;
pub use given::{ServingCertificate, ServingCertificateError};
pub use identity::Identity;
pub use issue::{ApprovedRequest, IssueError};
pub use serving::{GivenCertificates, LOOPBACK_CLIENT_NAME, ServingIdentity};
pub use shared::SharedKeys;
pub use tls::{client_config, server_config, unverified_client_config};

use crate::jwt::{JwtError, SigningKey};
use files::Store;
use identity::{Subject, Wanted};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Failures to make or to read keys and certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{what} cannot be read; remove it to have a new one created")]
    Unreadable { what: String },
    #[error("{} is another one than the servers of this cluster share", path.display())]
    Another { path: PathBuf },
    #[error("making a certificate")]
    Making(#[from] rcgen::Error),
    #[error("the service account key")]
    ServiceAccountKey(#[from] JwtError),
    #[error("setting up TLS")]
    Tls(#[from] rustls::Error),
}

/// The user that the API server is to kubelets. A default binding gives it `system:kubelet-api-admin` and nothing more:
/// were it a master, a client that points a node's address at the API server would be one.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The names and addresses a serving certificate answers to.
pub type ServingNames = BTreeSet<String>;

/// Everything the API server itself needs.
#[derive(Debug)]
pub struct Pki {
    pub cluster: Authority,
    pub front_proxy: Authority,
    pub service_accounts: SigningKey,
    /// The API server's serving certificate.
    pub serving: Identity,
    /// The API server's client certificate for kubelets.
    pub kubelet_client: Identity,
    /// The API server's client certificate for aggregated servers.
    pub front_proxy_client: Identity,
}

impl Pki {
    /// The file with what the API server shows to its clients.
    pub const SERVING_CERTIFICATE: &str = "apiserver.crt";
    /// The file with its key.
    pub const SERVING_KEY: &str = "apiserver.key";

    /// Makes everything, without files.
    pub fn generate(names: &ServingNames, now: Timestamp) -> Result<Self, PkiError> {
        Self::with_keys(BTreeMap::new(), names, now)
    }

    /// Makes everything but these files (`ca.key`, `front-proxy-ca.key`, `sa.key` …), without files. A simulation gives known
    /// keys, so that a seed is the same run in every process.
    pub fn with_keys(
        files: BTreeMap<String, String>,
        names: &ServingNames,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        Self::load(&Store::memory(files), names, now)
    }

    /// Reads what is in the folder and makes what is missing.
    pub fn open(folder: &Path, names: &ServingNames, now: Timestamp) -> Result<Self, PkiError> {
        Self::load(&Store::folder(folder)?, names, now)
    }

    fn load(store: &Store, names: &ServingNames, now: Timestamp) -> Result<Self, PkiError> {
        let cluster = Authority::load(store, "ca", "kubernetes", now)?;
        let front_proxy = Authority::load(store, "front-proxy-ca", "front-proxy-ca", now)?;
        let client = |file: &str, authority: &Authority, name: &str| {
            let subject = Subject {
                name: name.to_owned(),
                groups: Vec::new(),
            };
            Identity::load(store, file, now, &Wanted::Client(&subject), || {
                authority.client(name, None, now)
            })
        };
        Ok(Self {
            service_accounts: load_signing_key(store)?,
            serving: Identity::load(store, "apiserver", now, &Wanted::Names(names), || {
                cluster.serving("kube-apiserver", names, now)
            })?,
            kubelet_client: client("apiserver-kubelet-client", &cluster, KUBELET_CLIENT)?,
            front_proxy_client: client("front-proxy-client", &front_proxy, "front-proxy-client")?,
            cluster,
            front_proxy,
        })
    }

    /// Time at which the first of the leaf certificates is due for renewal; calling [`Pki::open`] then renews it.
    pub fn renew_at(&self) -> Timestamp {
        let leaves = [&self.serving, &self.kubelet_client, &self.front_proxy_client];
        leaves
            .into_iter()
            .map(Identity::renew_at)
            .min()
            .unwrap_or(Timestamp::MAX)
    }
}

fn load_signing_key(store: &Store) -> Result<SigningKey, PkiError> {
    if let Some(text) = store.read("sa.key")? {
        return Ok(SigningKey::from_pem(&text)?);
    }
    let key = SigningKey::generate()?;
    store.write("sa.pub", &key.public().to_pem())?;
    store.write("sa.key", &key.to_pem())?;
    Ok(key)
}

#[cfg(test)]
mod tests;
