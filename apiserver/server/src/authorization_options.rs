//! Flags of authorization, with upstream's names and rules of which exclude which.

use apiserver_auth::REVIEW_CALL_TIMEOUT;
use apiserver_auth::authz::AuthorizerRules;
use apiserver_auth::authz::structured::{AUTHORIZATION_MODES, WebhookRules};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

/// The modes of a server whose flags name none; upstream's is `AlwaysAllow`.
const DEFAULT_MODES: [&str; 2] = ["Node", "RBAC"];
const WEBHOOK: &str = "Webhook";
const ABAC: &str = "ABAC";
const ALWAYS_ALLOW: &str = "AlwaysAllow";
/// The name of the webhook that flags name.
const WEBHOOK_NAME: &str = "default";
const DEFAULT_VERSION: &str = "v1beta1";
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const DEFAULT_AUTHORIZED_TTL: Duration = Duration::from_secs(300);
const DEFAULT_UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
pub(crate) const NO_POLICY_FILE: &str = "authorization-mode ABAC's authorization policy file not passed";

/// See the module; what is not given is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorizationOptions {
    /// `--authorization-config`, which is read again as it changes.
    pub config_file: Option<PathBuf>,
    /// `--authorization-policy-file`, the policies of the mode `ABAC`, in whichever way it is configured.
    pub policy_file: Option<PathBuf>,
    pub legacy: AuthorizationModeOptions,
}

/// `--authorization-mode` and `--authorization-webhook-*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorizationModeOptions {
    pub modes: Vec<String>,
    /// A kubeconfig.
    pub webhook_config_file: Option<PathBuf>,
    /// Of SubjectAccessReview: `v1` or `v1beta1`.
    pub webhook_version: Option<String>,
    pub webhook_cache_authorized_ttl: Option<Duration>,
    pub webhook_cache_unauthorized_ttl: Option<Duration>,
}

impl AuthorizationOptions {
    pub(crate) fn check(&self) -> Vec<String> {
        if self.config_file.is_none() {
            return self.legacy.check(self.policy_file.is_some());
        }
        let is_given = self.legacy != AuthorizationModeOptions::default();
        let problem = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";
        is_given.then(|| problem.to_owned()).into_iter().collect()
    }
}

impl AuthorizationOptions {
    /// Reports whether flags allow everything to every user, so that none may be anonymous.
    pub(crate) fn allows_everything(&self) -> bool {
        self.config_file.is_none() && self.legacy.modes().contains(&ALWAYS_ALLOW)
    }
}

impl AuthorizationModeOptions {
    fn modes(&self) -> Vec<&str> {
        match self.modes.is_empty() {
            true => DEFAULT_MODES.to_vec(),
            false => self.modes.iter().map(String::as_str).collect(),
        }
    }

    fn version(&self) -> &str {
        self.webhook_version.as_deref().unwrap_or(DEFAULT_VERSION)
    }

    fn check(&self, has_policies: bool) -> Vec<String> {
        let mut problems = Vec::new();
        let modes = self.modes();
        for mode in &modes {
            if !AUTHORIZATION_MODES.contains(mode) {
                problems.push(format!("authorization-mode {mode:?} is not a valid mode"));
            }
        }
        match (modes.contains(&ABAC), has_policies) {
            (true, false) => problems.push(NO_POLICY_FILE.to_owned()),
            (false, true) => {
                problems.push("cannot specify --authorization-policy-file without mode ABAC".to_owned());
            }
            _ => {}
        }
        match (modes.contains(&WEBHOOK), self.webhook_config_file.is_some()) {
            (true, false) => {
                problems.push("authorization-mode Webhook's authorization config file not passed".to_owned());
            }
            (false, true) => problems
                .push("cannot specify --authorization-webhook-config-file without mode Webhook".to_owned()),
            _ => {}
        }
        let different: HashSet<&&str> = modes.iter().collect();
        if different.len() < modes.len() {
            let shown: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
            problems.push(format!(
                "authorization-mode [{}] has mode specified more than once",
                shown.join(" ")
            ));
        }
        if !VERSIONS.contains(&self.version()) {
            problems.push(format!(
                "unsupported webhook authorizer version {:?}, supported versions are \"v1\", \"v1beta1\"",
                self.version()
            ));
        }
        problems
    }

    /// The authorizers that these flags stand for.
    pub(crate) fn rules(&self) -> Vec<AuthorizerRules> {
        let modes = self.modes().into_iter();
        let rules = modes.filter_map(|mode| {
            Some(match mode {
                ALWAYS_ALLOW => AuthorizerRules::AlwaysAllow,
                "AlwaysDeny" => AuthorizerRules::AlwaysDeny,
                "Node" => AuthorizerRules::Node,
                "RBAC" => AuthorizerRules::Rbac,
                ABAC => AuthorizerRules::Abac,
                _ => AuthorizerRules::Webhook(WebhookRules {
                    name: WEBHOOK_NAME.to_owned(),
                    authorized_ttl: self
                        .webhook_cache_authorized_ttl
                        .unwrap_or(DEFAULT_AUTHORIZED_TTL),
                    unauthorized_ttl: self
                        .webhook_cache_unauthorized_ttl
                        .unwrap_or(DEFAULT_UNAUTHORIZED_TTL),
                    timeout: REVIEW_CALL_TIMEOUT,
                    version: self.version().to_owned(),
                    denies_on_failure: false,
                    kubeconfig: self.webhook_config_file.clone()?,
                    conditions: Default::default(),
                }),
            })
        });
        rules.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edit: fn(&mut AuthorizationOptions), expected: &str) {
        let mut options = AuthorizationOptions::default();
        edit(&mut options);
        assert_eq!(options.check().join("; "), expected);
    }

    fn modes(own: &mut AuthorizationOptions, modes: &[&str]) {
        own.legacy.modes = modes.iter().map(|&mode| mode.to_owned()).collect();
    }

    #[test]
    fn authorization_flags_exclude_each_other_as_upstreams_do() {
        check(|_| {}, "");
        check(|own| modes(own, &["Node", "RBAC", "AlwaysDeny"]), "");
        check(|own| own.config_file = Some("f".into()), "");
        let both = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";
        check(
            |own| {
                own.config_file = Some("f".into());
                own.legacy.webhook_version = Some("v1".to_owned());
            },
            both,
        );
        check(
            |own| modes(own, &["RBAC", "Abac", "RBAC"]),
            "authorization-mode \"Abac\" is not a valid mode; authorization-mode [\"RBAC\" \"Abac\" \"RBAC\"] has mode specified more than once",
        );
        check(
            |own| modes(own, &["ABAC"]),
            "authorization-mode ABAC's authorization policy file not passed",
        );
        check(
            |own| own.policy_file = Some("f".into()),
            "cannot specify --authorization-policy-file without mode ABAC",
        );
        let with_file = |own: &mut AuthorizationOptions| {
            own.config_file = Some("f".into());
            own.policy_file = Some("f".into());
        };
        check(with_file, "");
        check(
            |own| modes(own, &["Webhook"]),
            "authorization-mode Webhook's authorization config file not passed",
        );
        check(
            |own| own.legacy.webhook_config_file = Some("f".into()),
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        );
        check(
            |own| own.legacy.webhook_version = Some("v2".to_owned()),
            "unsupported webhook authorizer version \"v2\", supported versions are \"v1\", \"v1beta1\"",
        );
    }

    #[test]
    fn authorization_flags_make_authorizers() {
        let mut options = AuthorizationOptions::default();
        let of = |options: &AuthorizationOptions| -> Vec<&str> {
            options.legacy.rules().iter().map(AuthorizerRules::mode).collect()
        };
        assert_eq!(of(&options), ["Node", "RBAC"]);
        modes(&mut options, &["Webhook", "ABAC", "RBAC"]);
        options.legacy.webhook_config_file = Some("/hook".into());
        assert_eq!(of(&options), ["Webhook", "ABAC", "RBAC"]);
    }
}
