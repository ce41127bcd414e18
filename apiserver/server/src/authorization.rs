//! Authorizers by `--authorization-config` or flags; a changed file is put in use while the server runs.

use crate::access_error::AuthorizationError;
use crate::authorization_options::AuthorizationOptions;
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::file_reload;
use crate::metrics::{Metrics, ReloadMetrics};
use crate::reload::{Reload, ReloadError};
use apiserver_auth::authz::abac::AbacAuthorizer;
use apiserver_auth::authz::{AuthorizationConfiguration, AuthorizerChain, AuthorizerParts, AuthorizerRules};
use machinery_runtime::Runtime;
use std::collections::BTreeSet;
use std::sync::Arc;

const CONFIG_FLAG: &str = "--authorization-config";
const POLICY_FLAG: &str = "--authorization-policy-file";
const WEBHOOK: &str = "Webhook";

/// The authorizers that a file names.
fn read(text: &str) -> Result<Vec<AuthorizerRules>, String> {
    let configuration = AuthorizationConfiguration::decode(text).map_err(|error| error.to_string())?;
    let rules = configuration.compile().map_err(|problems| problems.to_string())?;
    match configuration.misnamed().as_slice() {
        [] => Ok(rules),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// Modes that do not change while the server runs.
fn fixed(rules: &[AuthorizerRules]) -> BTreeSet<&'static str> {
    let modes = rules.iter().map(AuthorizerRules::mode);
    modes.filter(|mode| *mode != WEBHOOK).collect()
}

/// The policies, where one of the authorizers is of the mode `ABAC`. They stay as they are while the server runs, as upstream's.
fn policies(
    options: &AuthorizationOptions,
    rules: &[AuthorizerRules],
) -> Result<Arc<AbacAuthorizer>, ServerError> {
    if !rules.iter().any(|rules| matches!(rules, AuthorizerRules::Abac)) {
        return Ok(Arc::default());
    }
    let path = options.policy_file.as_ref();
    let path = path.ok_or(AuthorizationError::NoPolicyFile)?;
    let content = file_reload::read(path).map_err(|source| ServerError::File {
        flag: POLICY_FLAG,
        path: path.clone(),
        source,
    })?;
    let policies = AbacAuthorizer::parse(path, &content).map_err(AuthorizationError::from)?;
    Ok(Arc::new(policies))
}

/// Makes the chain, and follows the file where there is one.
pub(crate) fn open(
    config: &ServerConfig,
    mut parts: AuthorizerParts,
    metrics: &Metrics,
    runtime: &Runtime,
) -> Result<AuthorizerChain, ServerError> {
    let options = &config.authorization;
    let Some(path) = &options.config_file else {
        let rules = options.legacy.rules();
        parts.abac = policies(options, &rules)?;
        let authorizers = parts.authorizers(rules);
        return Ok(AuthorizerChain::new(
            authorizers.map_err(AuthorizationError::from)?,
        ));
    };
    let text = file_reload::read(path).map_err(|source| ServerError::File {
        flag: CONFIG_FLAG,
        path: path.clone(),
        source,
    })?;
    let rules = read(&text).map_err(|why| AuthorizationError::Load {
        path: path.clone(),
        why,
    })?;
    parts.abac = policies(options, &rules)?;
    let modes = fixed(&rules);
    let authorizers = parts.authorizers(rules).map_err(AuthorizationError::from)?;
    let chain = AuthorizerChain::new(authorizers);
    let changed = Arc::new(Changed {
        chain: chain.clone(),
        parts,
        modes,
    });
    let reload = Reload {
        what: CONFIG_FLAG,
        path: path.clone(),
        interval: config.file_reload_interval,
        runtime: runtime.clone(),
        metrics: ReloadMetrics::authorization(metrics.families(), runtime)?,
    };
    reload.start("authorization configuration", text, move |text| {
        let changed = Arc::clone(&changed);
        async move { changed.apply(&text) }
    });
    Ok(chain)
}

/// The part of the server that a changed file changes.
struct Changed {
    chain: AuthorizerChain,
    parts: AuthorizerParts,
    modes: BTreeSet<&'static str>,
}

impl Changed {
    fn apply(&self, text: &str) -> Result<(), ReloadError> {
        let rules = read(text).map_err(ReloadError::Unusable)?;
        let modes = fixed(&rules);
        let missing: Vec<&str> = self.modes.difference(&modes).copied().collect();
        if !missing.is_empty() {
            let why = format!("missing required types: [{}]", missing.join(" "));
            return Err(ReloadError::Unusable(why));
        }
        if let Some(mode) = modes.difference(&self.modes).next() {
            return Err(ReloadError::Unusable(format!(
                "authorizer type {mode} is not allowed if it was not enabled at initial server startup"
            )));
        }
        let authorizers = self.parts.authorizers(rules);
        // Its kubeconfig may be whole at the next look.
        let authorizers = authorizers.map_err(|error| ReloadError::NotYet(error.to_string()))?;
        self.chain.replace(authorizers);
        Ok(())
    }
}
