//! The flags of client certificates, front proxies, issuers of tokens and anonymous requests, as upstream's.

use super::controllers::duration;
use apiserver_server::{AuthenticationOptions, OidcOptions, RequestHeaderConfig, TokenWebhookOptions};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// See the module.
#[derive(Debug, Args)]
pub(crate) struct AuthenticationArguments {
    /// Bundle of authorities whose client certificates are accepted besides those of the cluster; read again as it changes
    #[arg(long)]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Bundle of authorities of front proxies, which name users in headers; read again as it changes
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; by default any name in a certificate of their authorities
    #[arg(long, value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers to look for a user's name in; X-Remote-User is common
    #[arg(long, value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Headers to look for a user's uid in; X-Remote-Uid is suggested
    #[arg(long, value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Headers to look for a user's groups in; X-Remote-Group is suggested
    #[arg(long, value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with what else is known of a user; X-Remote-Extra- is suggested
    #[arg(long, value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
    /// File with issuers of tokens and the rules of anonymous requests (AuthenticationConfiguration); read again as it changes. It excludes
    /// --oidc-* flags, and --anonymous-auth where it has rules of anonymous requests
    #[arg(long)]
    authentication_config: Option<PathBuf>,
    /// Let requests without credentials through as system:anonymous of the group system:unauthenticated (the default); =false refuses them
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    anonymous_auth: Option<bool>,
    #[command(flatten)]
    oidc: OidcArguments,
    /// Kubeconfig of a webhook that reviews tokens which nothing else knows
    #[arg(long)]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of authentication.k8s.io of the TokenReviews that the webhook is sent: v1 or v1beta1
    #[arg(long, default_value = "v1beta1")]
    authentication_token_webhook_version: String,
    /// Time for which answers of the token webhook are remembered; 0s for none
    #[arg(long, value_parser = duration, default_value = "2m0s")]
    authentication_token_webhook_cache_ttl: Duration,
}

/// One OpenID Connect issuer; several need a file.
#[derive(Debug, Args)]
struct OidcArguments {
    /// URL of the OpenID issuer, of https only; its tokens are accepted
    #[arg(long)]
    oidc_issuer_url: Option<String>,
    /// Client ID, which tokens of the OpenID issuer must have as an audience
    #[arg(long)]
    oidc_client_id: Option<String>,
    /// Bundle of authorities of the OpenID issuer's certificate; by default those of this machine
    #[arg(long)]
    oidc_ca_file: Option<PathBuf>,
    /// OpenID claim that is the user's name (default sub)
    #[arg(long)]
    oidc_username_claim: Option<String>,
    /// Prefix of user names; by default the issuer's URL and #, or none for the claim email; - for none
    #[arg(long, allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// OpenID claim with a user's groups, one text or a list
    #[arg(long)]
    oidc_groups_claim: Option<String>,
    /// Prefix of groups
    #[arg(long)]
    oidc_groups_prefix: Option<String>,
    /// Signature algorithms of tokens: RS256 (the default), RS384, RS512, ES256, ES384, PS256, PS384, PS512
    #[arg(long, value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
    /// A claim that tokens must have, and its value; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = required_claim)]
    oidc_required_claim: Vec<(String, String)>,
}

fn required_claim(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text
        .split_once('=')
        .ok_or_else(|| format!("malformed pair, expect string=string: {text}"))?;
    Ok((claim.trim().to_owned(), value.trim().to_owned()))
}

impl AuthenticationArguments {
    pub(crate) fn options(&self) -> AuthenticationOptions {
        let oidc = &self.oidc;
        AuthenticationOptions {
            config_file: self.authentication_config.clone(),
            anonymous_auth: self.anonymous_auth,
            oidc: OidcOptions {
                issuer_url: oidc.oidc_issuer_url.clone(),
                client_id: oidc.oidc_client_id.clone(),
                ca_file: oidc.oidc_ca_file.clone(),
                username_claim: oidc.oidc_username_claim.clone(),
                username_prefix: oidc.oidc_username_prefix.clone(),
                groups_claim: oidc.oidc_groups_claim.clone(),
                groups_prefix: oidc.oidc_groups_prefix.clone(),
                signing_algs: oidc.oidc_signing_algs.clone(),
                required_claims: oidc.oidc_required_claim.clone(),
            },
            webhook: TokenWebhookOptions {
                config_file: self.authentication_token_webhook_config_file.clone(),
                version: self.authentication_token_webhook_version.clone(),
                cache_ttl: self.authentication_token_webhook_cache_ttl,
            },
        }
    }

    pub(crate) fn request_header(&self) -> RequestHeaderConfig {
        RequestHeaderConfig {
            client_ca_file: self.requestheader_client_ca_file.clone(),
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_headers_prefix: self.requestheader_extra_headers_prefix.clone(),
        }
    }
}
