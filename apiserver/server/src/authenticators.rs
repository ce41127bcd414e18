//! The ways to authenticate, in the order in which they are tried.

use crate::account_keys::AccountKeys;
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::trust::Trust;
use apiserver_auth::authn::anonymous::Anonymous;
use apiserver_auth::authn::bootstrap_token::BootstrapTokens;
use apiserver_auth::authn::legacy_service_account::{LegacyServiceAccountTokens, TokenTracker};
use apiserver_auth::authn::oidc::JwtAuthenticators;
use apiserver_auth::authn::service_account::ServiceAccountTokens;
use apiserver_auth::authn::token::TokenAuthenticator;
use apiserver_auth::authn::token_file::TokenFile;
use apiserver_auth::authn::token_webhook::TokenWebhook;
use apiserver_auth::authn::{Authenticator, AuthenticatorChain, TokenAuthenticators};
use machinery_meta::reader::ObjectReader;
use std::sync::Arc;

/// Parts that authenticators are made of.
pub(crate) struct Parts<'a> {
    pub(crate) config: &'a ServerConfig,
    pub(crate) keys: &'a AccountKeys,
    pub(crate) reader: &'a Arc<dyn ObjectReader>,
    pub(crate) tracker: Arc<dyn TokenTracker>,
    pub(crate) issuers: Arc<JwtAuthenticators>,
    pub(crate) webhook: Option<TokenWebhook>,
}

impl Parts<'_> {
    /// Kinds of bearer tokens.
    pub(crate) fn tokens(self) -> Result<TokenAuthenticators, ServerError> {
        let config = self.config;
        let mut kinds: Vec<Arc<dyn TokenAuthenticator>> = Vec::new();
        if let Some(path) = &config.token_auth_file {
            let text = std::fs::read_to_string(path).map_err(|source| ServerError::File {
                flag: "--token-auth-file",
                path: path.clone(),
                source,
            })?;
            kinds.push(Arc::new(TokenFile::parse(&text)?));
        }
        let (reader, keys) = (self.reader, &self.keys.verifying);
        kinds.push(Arc::new(LegacyServiceAccountTokens::new(
            Arc::clone(reader),
            keys.clone(),
            config.audiences(),
            Arc::clone(&self.tracker),
        )));
        let projected = ServiceAccountTokens::new(Arc::clone(reader), keys.clone(), config.issuers());
        kinds.push(Arc::new(projected.tracked(self.tracker)));
        kinds.push(Arc::new(BootstrapTokens::new(Arc::clone(reader))));
        // Behind those of accounts, as upstream: their tokens cause no request to an issuer.
        kinds.push(self.issuers);
        kinds.extend(
            self.webhook
                .map(|own| Arc::new(own) as Arc<dyn TokenAuthenticator>),
        );
        Ok(TokenAuthenticators::new(kinds, config.audiences()))
    }
}

/// Front proxies, client certificates, tokens, anonymous requests.
pub(crate) fn chain(
    trust: &Trust,
    tokens: &Arc<TokenAuthenticators>,
    anonymous: Option<Anonymous>,
) -> AuthenticatorChain {
    let mut all: Vec<Arc<dyn Authenticator>> = vec![
        Arc::clone(&trust.proxies) as Arc<dyn Authenticator>,
        Arc::clone(&trust.clients) as Arc<dyn Authenticator>,
        Arc::clone(tokens) as Arc<dyn Authenticator>,
    ];
    all.extend(anonymous.map(|own| Arc::new(own) as Arc<dyn Authenticator>));
    AuthenticatorChain::new(all)
}
