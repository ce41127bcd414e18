//! Issuers of tokens and anonymous requests, by `--authentication-config` or flags; a changed file is put in use while the server runs.

use crate::access_error::AuthenticationError;
use crate::authentication_options::AuthenticationOptions;
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::file_reload;
use crate::metrics::{JwtMetrics, Metrics, ReloadMetrics};
use crate::reload::{Reload, ReloadError};
use apiserver_auth::authn::anonymous::Anonymous;
use apiserver_auth::authn::oidc::{JwtAuthenticators, JwtParts};
use apiserver_auth::authn::structured::{
    AnonymousAuthConfig, AuthenticationConfiguration, ConfigurationProblems, JwtRules,
};
use apiserver_auth::authn::token_webhook::TokenWebhook;
use apiserver_auth::{REVIEW_CALL_TIMEOUT, ReviewWebhook};
use apiserver_egress::Dialer;
use machinery_meta::{FieldError, FieldPath};
use machinery_runtime::Runtime;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time in which the issuers of a changed file must be found; upstream's.
const PATIENCE: Duration = Duration::from_secs(60);
const CONFIG_FLAG: &str = "--authentication-config";

/// See the module.
pub(crate) struct Authentication {
    pub(crate) issuers: Arc<JwtAuthenticators>,
    /// None where anonymous requests are refused.
    pub(crate) anonymous: Option<Anonymous>,
    pub(crate) webhook: Option<TokenWebhook>,
}

/// A configuration as it was read.
struct Loaded {
    configuration: AuthenticationConfiguration,
    /// The file's content.
    text: String,
}

fn load(options: &AuthenticationOptions) -> Result<Loaded, ServerError> {
    let read = |flag, path: &PathBuf| {
        file_reload::read(path).map_err(|source| ServerError::File {
            flag,
            path: path.clone(),
            source,
        })
    };
    if let Some(path) = &options.config_file {
        let text = read(CONFIG_FLAG, path)?;
        let decoded = AuthenticationConfiguration::decode(&text);
        let configuration = decoded.map_err(|error| AuthenticationError::Load {
            path: path.clone(),
            why: error.to_string(),
        })?;
        return Ok(Loaded { configuration, text });
    }
    let authorities = options.oidc.ca_file.as_ref();
    let authorities = authorities.map(|path| read("--oidc-ca-file", path)).transpose()?;
    Ok(Loaded {
        configuration: options.oidc.configuration(authorities.unwrap_or_default()),
        text: String::new(),
    })
}

/// The anonymous authenticator: by the file where it says something, by the flag otherwise.
fn anonymous(
    options: &AuthenticationOptions,
    file: Option<&AnonymousAuthConfig>,
) -> Result<Option<Anonymous>, AuthenticationError> {
    let (enabled, conditions) = match (file, options.anonymous_auth) {
        (Some(_), Some(_)) => {
            let detail = "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file";
            let problem = FieldError::forbidden(&FieldPath::new("anonymous"), detail);
            return Err(AuthenticationError::Anonymous(problem));
        }
        (Some(file), None) => (file.enabled, file.conditions.as_slice()),
        (None, flag) => (flag.unwrap_or(true), &[][..]),
    };
    let paths = conditions.iter().map(|own| own.path.clone()).collect();
    Ok(enabled.then(|| Anonymous {
        paths: Some(paths).filter(|paths: &Vec<String>| !paths.is_empty()),
    }))
}

impl Authentication {
    /// Reads the configuration, and follows its file where there is one.
    pub(crate) fn open(
        config: &ServerConfig,
        dialer: &Dialer,
        metrics: &Metrics,
        runtime: &Runtime,
    ) -> Result<Self, ServerError> {
        let options = &config.authentication;
        let Loaded { configuration, text } = load(options)?;
        let mut anonymous = anonymous(options, configuration.anonymous.as_ref())?;
        if configuration.anonymous.is_none()
            && config.authorization.allows_everything()
            && anonymous.take().is_some()
        {
            tracing::warn!(
                "anonymous requests are not allowed with the AlwaysAllow authorizer; they are refused. Use a different authorizer"
            );
        }
        let rules = configuration
            .compile(&config.issuers())
            .map_err(AuthenticationError::from)?;
        let parts = JwtParts {
            dialer: dialer.clone(),
            observer: JwtMetrics::new(metrics.families(), runtime)?,
            algorithms: options.algorithms(),
            runtime: runtime.clone(),
        };
        let issuers = JwtAuthenticators::new(parts, rules).map_err(AuthenticationError::from)?;
        let issuers = Arc::new(issuers);
        if let Some(path) = &options.config_file {
            let changed = Arc::new(Changed {
                issuers: Arc::clone(&issuers),
                anonymous: configuration.anonymous,
                own_issuers: config.issuers(),
            });
            let reload = Reload {
                what: CONFIG_FLAG,
                path: path.clone(),
                interval: config.file_reload_interval,
                runtime: runtime.clone(),
                metrics: ReloadMetrics::authentication(metrics.families(), runtime)?,
            };
            reload.start("authentication configuration", text, move |text| {
                let changed = Arc::clone(&changed);
                async move { changed.apply(&text).await }
            });
        }
        Ok(Self {
            issuers,
            anonymous,
            webhook: token_webhook(config, dialer, runtime)?,
        })
    }
}

fn token_webhook(
    config: &ServerConfig,
    dialer: &Dialer,
    runtime: &Runtime,
) -> Result<Option<TokenWebhook>, AuthenticationError> {
    let options = &config.authentication.webhook;
    let Some((path, version)) = options.config_file.as_ref().zip(options.version()) else {
        return Ok(None);
    };
    let webhook = ReviewWebhook::open(path, dialer.clone(), REVIEW_CALL_TIMEOUT);
    let webhook = webhook.map_err(|source| AuthenticationError::Kubeconfig {
        flag: "--authentication-token-webhook-config-file",
        source,
    })?;
    let (audiences, ttl) = (config.audiences(), options.cache_ttl);
    let webhook = TokenWebhook::new(webhook, version, audiences, ttl, runtime.clone());
    Ok(Some(webhook))
}

/// The part of the server that a changed file changes.
struct Changed {
    issuers: Arc<JwtAuthenticators>,
    /// As the server was started with it: it does not change.
    anonymous: Option<AnonymousAuthConfig>,
    own_issuers: Vec<String>,
}

impl Changed {
    fn rules(&self, text: &str) -> Result<Vec<JwtRules>, String> {
        let decoded = AuthenticationConfiguration::decode(text).map_err(|error| error.to_string())?;
        let compiled = decoded.compile(&self.own_issuers);
        if decoded.anonymous == self.anonymous {
            return compiled.map_err(|problems| problems.to_string());
        }
        let mut problems = compiled.err().map_or_else(Vec::new, |problems| problems.0);
        let detail = "changed from initial configuration file";
        problems.push(FieldError::forbidden(&FieldPath::new("anonymous"), detail));
        Err(ConfigurationProblems(problems).to_string())
    }

    async fn apply(&self, text: &str) -> Result<(), ReloadError> {
        let rules = self.rules(text).map_err(ReloadError::Unusable)?;
        let replaced = self.issuers.replace(rules, PATIENCE).await;
        replaced.map_err(ReloadError::NotYet)
    }
}
