//! The flags of authorization, as upstream's.

use super::controllers::duration;
use apiserver_server::{AuthorizationModeOptions, AuthorizationOptions};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct AuthorizationArguments {
    /// Authorizers in their order: Node, RBAC, Webhook, ABAC, AlwaysAllow, AlwaysDeny; by default Node,RBAC. Members of system:masters may do
    /// everything in any case
    #[arg(long, value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// File with the authorizers and their webhooks (AuthorizationConfiguration); read again as it changes. It excludes --authorization-mode
    /// and --authorization-webhook-* flags
    #[arg(long)]
    authorization_config: Option<PathBuf>,
    /// File with policies, one JSON object in each line, of --authorization-mode=ABAC; read at the start
    #[arg(long)]
    authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the webhook of --authorization-mode=Webhook
    #[arg(long)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Version of authorization.k8s.io of the SubjectAccessReviews that the webhook is sent: v1beta1 (the default) or v1
    #[arg(long)]
    authorization_webhook_version: Option<String>,
    /// Time for which the webhook's permissions are remembered (default 5m0s)
    #[arg(long, value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// Time for which the webhook's other answers are remembered (default 30s)
    #[arg(long, value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
}

impl AuthorizationArguments {
    pub(crate) fn options(&self) -> AuthorizationOptions {
        AuthorizationOptions {
            config_file: self.authorization_config.clone(),
            policy_file: self.authorization_policy_file.clone(),
            legacy: AuthorizationModeOptions {
                modes: self.authorization_mode.clone(),
                webhook_config_file: self.authorization_webhook_config_file.clone(),
                webhook_version: self.authorization_webhook_version.clone(),
                webhook_cache_authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
                webhook_cache_unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
            },
        }
    }
}
