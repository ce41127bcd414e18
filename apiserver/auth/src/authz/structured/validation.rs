//! Rules of `AuthorizationConfiguration`, in upstream's order and words.

use super::{
    AUTHORIZATION_MODES, AuthorizationConfiguration, AuthorizerConfiguration, AuthorizerRules,
    ConnectionInfo, GoDuration, MatchCondition, WEBHOOK, WebhookConfiguration, WebhookRules,
};
use crate::authn::structured::ConfigurationProblems;
use crate::authz::webhook::MatchConditions;
use machinery_cel::ExpressionProblem;
use machinery_meta::field::Shown;
use machinery_meta::syntax::dns1123_subdomain;
use machinery_meta::{FieldError, FieldPath};
use serde_json::json;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

const MAX_CONDITIONS: usize = 64;
const MAX_TIMEOUT: GoDuration = GoDuration::of_seconds(30);
const KUBECONFIG: &str = "KubeConfigFile";
const IN_CLUSTER: &str = "InClusterConfig";

pub(super) fn compile(
    own: &AuthorizationConfiguration,
) -> Result<Vec<AuthorizerRules>, ConfigurationProblems> {
    let path = FieldPath::new("authorizers");
    let mut checking = Checking::default();
    if own.authorizers.is_empty() {
        checking.required(&path, "at least one authorization mode must be defined");
    }
    let (mut modes, mut names, mut rules) = (HashSet::new(), HashSet::new(), Vec::new());
    for (at, authorizer) in own.authorizers.iter().enumerate() {
        let path = path.index(at);
        if checking.mode(authorizer, &path, &mut modes) {
            checking.name(authorizer, &path, &mut names);
            rules.extend(checking.rules(authorizer, &path));
        }
    }
    match checking.0.is_empty() {
        true => Ok(rules),
        false => Err(ConfigurationProblems(checking.0)),
    }
}

/// Problems that were found.
#[derive(Default)]
struct Checking(Vec<FieldError>);

impl Checking {
    fn required(&mut self, path: &FieldPath, detail: &str) {
        self.0.push(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: &FieldPath, value: &str, detail: impl Into<String>) {
        self.0.push(FieldError::invalid(path, value, detail));
    }

    /// Reports whether the mode is one.
    fn mode<'a>(
        &mut self,
        own: &'a AuthorizerConfiguration,
        path: &FieldPath,
        seen: &mut HashSet<&'a str>,
    ) -> bool {
        let (path, mode) = (path.child("type"), own.kind.as_str());
        if mode.is_empty() {
            self.required(&path, "");
            return false;
        }
        if !AUTHORIZATION_MODES.contains(&mode) {
            let problem = FieldError::not_supported(&path, mode, &AUTHORIZATION_MODES);
            self.0.push(problem);
            return false;
        }
        if !seen.insert(mode) && mode != WEBHOOK {
            self.0.push(FieldError::duplicate(&path, mode));
            return false;
        }
        true
    }

    fn name<'a>(&mut self, own: &'a AuthorizerConfiguration, path: &FieldPath, seen: &mut HashSet<&'a str>) {
        let (path, name) = (path.child("name"), own.name.as_str());
        let problems = dns1123_subdomain(name);
        if name.is_empty() {
            self.required(&path, "");
        } else if seen.contains(name) {
            self.0.push(FieldError::duplicate(&path, name));
        } else if !problems.is_empty() {
            self.invalid(
                &path,
                name,
                format!("authorizer name is invalid: {}", problems.join(", ")),
            );
        }
        seen.insert(name);
    }

    fn rules(&mut self, own: &AuthorizerConfiguration, path: &FieldPath) -> Option<AuthorizerRules> {
        if own.kind != WEBHOOK {
            if own.webhook.is_some() {
                let detail = "may only be specified when type=Webhook";
                self.invalid(&path.child("webhook"), "non-null", detail);
            }
            return Some(match own.kind.as_str() {
                "AlwaysAllow" => AuthorizerRules::AlwaysAllow,
                "AlwaysDeny" => AuthorizerRules::AlwaysDeny,
                "Node" => AuthorizerRules::Node,
                "ABAC" => AuthorizerRules::Abac,
                _ => AuthorizerRules::Rbac,
            });
        }
        let Some(webhook) = &own.webhook else {
            self.required(&path.child("webhook"), "required when type=Webhook");
            return None;
        };
        let conditions = self.webhook(webhook, path);
        let remembered =
            |ttl: GoDuration, is_kept: bool| if is_kept { ttl.time() } else { Default::default() };
        Some(AuthorizerRules::Webhook(WebhookRules {
            name: own.name.clone(),
            authorized_ttl: remembered(webhook.authorized_ttl, webhook.cache_authorized_requests),
            unauthorized_ttl: remembered(webhook.unauthorized_ttl, webhook.cache_unauthorized_requests),
            timeout: webhook.timeout.time(),
            version: webhook.subject_access_review_version.clone(),
            denies_on_failure: webhook.failure_policy == "Deny",
            kubeconfig: PathBuf::from(
                webhook
                    .connection_info
                    .kube_config_file
                    .clone()
                    .unwrap_or_default(),
            ),
            conditions,
        }))
    }

    /// Its fields have the path of the authorizer, as upstream's.
    fn webhook(&mut self, own: &WebhookConfiguration, path: &FieldPath) -> MatchConditions {
        let timeout = path.child("timeout");
        match own.timeout {
            zero if zero == GoDuration::default() => self.required(&timeout, ""),
            bad if bad > MAX_TIMEOUT || bad < GoDuration::default() => {
                self.invalid(&timeout, &bad.text(), "must be > 0s and <= 30s");
            }
            _ => {}
        }
        self.ttl(own.authorized_ttl, &path.child("authorizedTTL"));
        self.ttl(own.unauthorized_ttl, &path.child("unauthorizedTTL"));
        let version = own.subject_access_review_version.as_str();
        self.one_of(
            version,
            &path.child("subjectAccessReviewVersion"),
            &["v1", "v1beta1"],
        );
        let version = own.match_condition_subject_access_review_version.as_str();
        let at = path.child("matchConditionSubjectAccessReviewVersion");
        match version {
            "" if own.match_conditions.is_empty() => {}
            "" => self.required(&at, "required if match conditions are specified"),
            version => self.one_of(version, &at, &["v1"]),
        }
        self.one_of(
            &own.failure_policy,
            &path.child("failurePolicy"),
            &["NoOpinion", "Deny"],
        );
        self.connection(&own.connection_info, &path.child("connectionInfo"));
        self.conditions(&own.match_conditions, path)
    }

    fn ttl(&mut self, ttl: GoDuration, path: &FieldPath) {
        if ttl < GoDuration::default() {
            self.invalid(path, &ttl.text(), "must be > 0s");
        }
    }

    fn one_of(&mut self, value: &str, path: &FieldPath, supported: &[&str]) {
        match value {
            "" => self.required(path, ""),
            value if supported.contains(&value) => {}
            value => self.0.push(FieldError::not_supported(path, value, supported)),
        }
    }

    fn connection(&mut self, own: &ConnectionInfo, path: &FieldPath) {
        let file = path.child("kubeConfigFile");
        let given = own.kube_config_file.as_deref();
        match own.kind.as_str() {
            "" => self.required(&path.child("type"), ""),
            IN_CLUSTER => {
                if let Some(given) = given {
                    self.invalid(&file, given, "can only be set when type=KubeConfigFile");
                }
                // This server has no account in a cluster that it runs in.
                self.invalid(
                    &path.child("type"),
                    IN_CLUSTER,
                    "is not supported by this server; name a kubeConfigFile",
                );
            }
            KUBECONFIG => match given.unwrap_or_default() {
                "" => self.required(&file, ""),
                given => self.file(given, &file),
            },
            kind => {
                let shown = json!({"Type": kind, "KubeConfigFile": own.kube_config_file});
                let supported = [IN_CLUSTER, KUBECONFIG];
                let problem =
                    FieldError::not_supported(&path.child("type"), Shown(shown.to_string()), &supported);
                self.0.push(problem);
            }
        }
    }

    fn file(&mut self, given: &str, path: &FieldPath) {
        if !Path::new(given).is_absolute() {
            return self.invalid(path, given, "must be an absolute path");
        }
        match std::fs::metadata(given) {
            Err(error) => self.invalid(path, given, format!("error loading file: {error}")),
            Ok(found) if !found.is_file() => self.invalid(path, given, "must be a regular file"),
            Ok(_) => {}
        }
    }

    fn conditions(&mut self, all: &[MatchCondition], path: &FieldPath) -> MatchConditions {
        let path = path.child("matchConditions");
        let mut conditions = MatchConditions::default();
        if all.len() > MAX_CONDITIONS {
            let problem = FieldError::too_many(&path, all.len(), MAX_CONDITIONS);
            self.0.push(problem);
            return conditions;
        }
        let mut seen = HashSet::new();
        for (at, own) in all.iter().enumerate() {
            let (path, text) = (path.index(at).child("expression"), own.expression.as_str());
            if text.trim().is_empty() {
                self.required(&path, "");
            } else if !seen.insert(text) {
                self.0.push(FieldError::duplicate(&path, text));
            } else {
                match conditions.add(text) {
                    Ok(()) => {}
                    Err(ExpressionProblem::Invalid(why)) => self.invalid(&path, text, why),
                    Err(ExpressionProblem::Internal(why)) => self.0.push(FieldError::internal(&path, why)),
                }
            }
        }
        conditions
    }
}
