//! Options of the connection to etcd, and of the storage over it.

use crate::Quota;
use crate::encryption::Encryption;
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use std::sync::Arc;
use std::time::Duration;

/// Options of storage in etcd.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// `http://` or `https://` and the address of each member (`--etcd-servers`).
    pub endpoints: Vec<String>,
    /// PEM of the authority that signed the servers' certificates (`--etcd-cafile`).
    pub ca: Option<Vec<u8>>,
    /// PEM of our certificate and its key (`--etcd-certfile`, `--etcd-keyfile`).
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Time that changes are kept before they are compacted; never when zero (`--etcd-compaction-interval`).
    pub retention: Duration,
    /// Entries requested at once; a longer list is read in several requests at one revision.
    pub range_chunk: usize,
    /// Encryption of values in etcd; none leaves them plain.
    pub encryption: Option<Arc<Encryption>>,
    /// Everything below it is ours; keys begin with it.
    pub prefix: String,
    /// Bytes of recent changes in memory; older ones are read from etcd.
    pub history_bytes: usize,
    /// Bounds of what is stored; none by default, beside etcd's own.
    pub quota: Quota,
    /// Bytes that states of lists read page by page may hold beside the state of now; of more the oldest is etcd's to read.
    pub pinned_bytes: u64,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Entries of one request, where the options name no other number.
const RANGE_CHUNK: usize = 500;
/// Upstream's `--etcd-prefix`.
const PREFIX: &str = "/registry/";
const HISTORY_BYTES: usize = 16 << 20;

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            ca: None,
            identity: None,
            retention: Duration::ZERO,
            range_chunk: RANGE_CHUNK,
            encryption: None,
            prefix: PREFIX.to_owned(),
            history_bytes: HISTORY_BYTES,
            quota: Quota::default(),
            pinned_bytes: crate::live::PINNED_BYTES,
        }
    }
}

impl EtcdOptions {
    pub(super) fn how(&self) -> ConnectOptions {
        let how = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE_TIMEOUT)
            // A member without a leader says so, and ends its watches: they would wait in silence.
            .with_require_leader(true);
        if self.ca.is_some() || self.identity.is_some() {
            return how.with_tls(self.tls());
        }
        how
    }

    fn tls(&self) -> TlsOptions {
        let mut tls = TlsOptions::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        tls
    }
}
