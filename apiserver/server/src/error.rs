//! Reasons why a server does not start.

use crate::access_error::{AuthenticationError, AuthorizationError};
use crate::admission_configuration::AdmissionConfigurationError;
use crate::config::ConfigError;
use crate::filters::audit::policy::PolicyError;
use crate::serving_certificates::PairError;
use crate::startup::error::StartupError;
use crate::trust::SharedAuthority;
use apiserver_auth::KubeconfigError;
use apiserver_auth::authn::AuthoritiesError;
use apiserver_auth::authn::token_file::TokenFileError;
use apiserver_auth::jwt::JwtError;
use apiserver_auth::pki::PkiError;
use std::net::SocketAddr;

/// Failures to start a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("certificates and keys")]
    Pki(#[from] PkiError),
    #[error("{flag}")]
    Authorities {
        flag: &'static str,
        #[source]
        source: AuthoritiesError,
    },
    #[error(transparent)]
    SharedAuthority(#[from] SharedAuthority),
    #[error("{flag} {}", path.display())]
    AccountKey {
        flag: &'static str,
        path: std::path::PathBuf,
        #[source]
        source: JwtError,
    },
    #[error("{flag} {}", path.display())]
    File {
        flag: &'static str,
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{flag}")]
    ServingCertificate {
        flag: &'static str,
        #[source]
        source: PairError,
    },
    #[error(transparent)]
    Authentication(#[from] AuthenticationError),
    #[error(transparent)]
    Authorization(#[from] AuthorizationError),
    #[error("--token-auth-file")]
    TokenFile(#[from] TokenFileError),
    #[error("listening on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("--audit-policy-file")]
    AuditPolicy(#[from] PolicyError),
    #[error("--audit-webhook-config-file")]
    AuditWebhook(#[source] KubeconfigError),
    #[error("admission plugins")]
    Admission(#[from] AdmissionConfigurationError),
    #[error("metrics")]
    Metrics(#[from] prometheus::Error),
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error("the runtime is shutting down")]
    Stopping,
}
