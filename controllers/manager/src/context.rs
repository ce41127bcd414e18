//! Dependencies that every controller receives.

use crate::config::Config;
use machinery_client::{Client, Informers};
use machinery_reconcile::EventRecorder;
use machinery_runtime::Runtime;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Gives the client of a service account in `kube-system`.
pub type ClientOf = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// The account whose token is signed, and the Secret that will hold it.
#[derive(Debug, Clone, Copy)]
pub struct TokenOf<'a> {
    /// Of account and Secret.
    pub namespace: &'a str,
    /// The account's name.
    pub account: &'a str,
    /// The account's uid.
    pub account_uid: &'a str,
    /// The Secret's name.
    pub secret: &'a str,
}

/// Signs tokens that are kept in Secrets, with the key of the API server (`--service-account-private-key-file`).
pub type TokenSigner = Arc<dyn Fn(TokenOf<'_>) -> Result<String, String> + Send + Sync>;

/// An approved signing request, and what its certificate is to say.
#[derive(Debug, Clone, Copy)]
pub struct CertificateOf<'a> {
    /// In PEM.
    pub request: &'a [u8],
    /// The API's words.
    pub usages: &'a [String],
    /// It ends earlier where its authority does.
    pub lifetime: Duration,
}

/// Signs certificates with the key of the cluster's authority (`--cluster-signing-key-file`), which stays where it is.
pub type CertificateSigner = Arc<dyn Fn(CertificateOf<'_>) -> Result<String, String> + Send + Sync>;

/// Runtime, shared informers, identities and settings.
#[derive(Clone)]
pub struct ControllerContext {
    /// Clock, tasks, randomness.
    pub runtime: Runtime,
    /// Reads, shared by all controllers.
    pub informers: Informers,
    /// Settings.
    pub config: Arc<Config>,
    /// Absent where there is no key.
    pub token_signer: Option<TokenSigner>,
    /// Absent where there is no authority.
    pub certificate_signer: Option<CertificateSigner>,
    clients: ClientOf,
}

impl ControllerContext {
    /// `informers` read as `system:kube-controller-manager`; `clients` answers the client of a service account.
    pub fn new(runtime: Runtime, informers: Informers, clients: ClientOf, config: Config) -> Self {
        Self {
            runtime,
            informers,
            config: Arc::new(config),
            token_signer: None,
            certificate_signer: None,
            clients,
        }
    }

    /// Tokens of Secrets are signed by this.
    #[must_use]
    pub fn with_token_signer(mut self, signer: TokenSigner) -> Self {
        self.token_signer = Some(signer);
        self
    }

    /// Certificates of signing requests are signed by this.
    #[must_use]
    pub fn with_certificate_signer(mut self, signer: CertificateSigner) -> Self {
        self.certificate_signer = Some(signer);
        self
    }

    /// The client a controller writes with.
    pub fn client(&self, service_account: &str) -> Client {
        (self.clients)(service_account)
    }

    /// Records events as a component, with its client.
    pub fn recorder(&self, client: &Client, component: &str) -> EventRecorder {
        EventRecorder::new(client.clone(), component)
    }
}

impl fmt::Debug for ControllerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerContext")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
