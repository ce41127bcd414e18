//! Certificates are recreated while the server runs, long before they expire; connections under way keep theirs.

use apiserver_auth::pki::{Pki, PkiError, ServingIdentity, ServingNames, client_config};
use apiserver_egress::{ClientIdentity, Dialer};
use jiff::Timestamp;
use machinery_runtime::{Runtime, TaskEnded};
use rustls::crypto::CryptoProvider;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The clock may be set meanwhile, so it is looked at this often at least.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3_600);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);

/// Certificates that are renewed, and their users.
pub(crate) struct Renewal {
    pub(crate) folder: PathBuf,
    pub(crate) names: ServingNames,
    pub(crate) serving: Arc<ServingIdentity>,
    pub(crate) dialer: Dialer,
    pub(crate) front_proxy: Arc<ClientIdentity>,
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) runtime: Runtime,
}

/// New certificates are not to be had.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("reading the certificates")]
    Ended(#[from] TaskEnded),
}

impl Renewal {
    /// Runs as long as the server.
    pub(crate) async fn run(self: Arc<Self>, due: Option<Timestamp>) {
        let mut due = due.unwrap_or(self.runtime.now());
        loop {
            let left = due.as_second() - self.runtime.now().as_second();
            if left > 0 {
                let wait = Duration::from_secs(u64::try_from(left).unwrap_or_default());
                self.runtime.sleep(wait.min(LONGEST_SLEEP)).await;
                continue;
            }
            match self.renew().await {
                Ok(next) => due = next,
                Err(error) => {
                    tracing::error!(%error, "renewing certificates failed");
                    self.runtime.sleep(RETRY).await;
                }
            }
        }
    }

    async fn renew(&self) -> Result<Timestamp, RenewalError> {
        let (folder, names, now) = (self.folder.clone(), self.names.clone(), self.runtime.now());
        let opening = self.runtime.blocking(move || Pki::open(&folder, &names, now));
        let pki = opening.await??;
        self.serving.replace(&pki.serving)?;
        let tls = client_config(pki.cluster.certificate(), &pki.kubelet_client, &self.provider)?;
        self.dialer.replace(Arc::new(tls));
        let proxy = &pki.front_proxy_client;
        self.front_proxy
            .replace(proxy.chain().to_vec(), proxy.key())
            .map_err(PkiError::from)?;
        tracing::info!(serving_until = %pki.serving.not_after(), "certificates renewed");
        Ok(pki.renew_at())
    }
}
