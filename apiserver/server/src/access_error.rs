//! Configurations of authentication and authorization that cannot be used, in upstream's words.

use crate::authorization_options::NO_POLICY_FILE;
use apiserver_auth::KubeconfigError;
use apiserver_auth::authn::structured::ConfigurationProblems;
use apiserver_auth::authz::abac::PolicyFileError;
use apiserver_egress::RemoteError;
use machinery_meta::FieldError;
use std::path::PathBuf;

/// Errors of authentication.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    #[error("failed to load authentication configuration from file {:?}: {why}", path.display().to_string())]
    Load { path: PathBuf, why: String },
    #[error("invalid authentication configuration: {0}")]
    Invalid(#[from] ConfigurationProblems),
    #[error("{0}")]
    Anonymous(FieldError),
    #[error("{0}")]
    Access(#[from] RemoteError),
    #[error("{flag}: {source}")]
    Kubeconfig {
        flag: &'static str,
        source: KubeconfigError,
    },
}

/// Errors of authorization.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizationError {
    #[error("failed to load AuthorizationConfiguration from file {:?}: {why}", path.display().to_string())]
    Load { path: PathBuf, why: String },
    #[error("{0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("{0}")]
    Policies(#[from] PolicyFileError),
    #[error("{}", NO_POLICY_FILE)]
    NoPolicyFile,
}
