//! Audit policy: the requests that are recorded, and their level of detail (`audit.k8s.io/v1` `Policy`, by upstream's
//! rules).

use apiserver_endpoints::RequestInfo;
use machinery_meta::UserInfo;
use machinery_meta::syntax::dns1123_subdomain;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The recorded part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage of a request at which an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The log beside it cannot be opened.
    #[error("opening the audit log")]
    Log(#[from] std::io::Error),
    #[error("{0}")]
    Yaml(String),
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    #[error("{0}")]
    Invalid(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde::de::IgnoredAny,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The policy's decision about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) level: Level,
    pub(crate) omit_stages: Vec<Stage>,
    pub(crate) omit_managed_fields: bool,
}

impl Policy {
    /// Everything at `Metadata`.
    pub(crate) fn metadata() -> Self {
        let everything = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}"#;
        serde_json::from_str(everything).expect("the policy is well formed")
    }

    /// Reads a policy. Unknown fields are ignored with a warning, as upstream's lenient decoding does.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, PolicyError> {
        let json =
            machinery_schema::yaml_to_json(text).map_err(|error| PolicyError::Yaml(error.to_string()))?;
        let json: Value = serde_json::from_str(&json)?;
        let unknown = unknown_fields(&json);
        if !unknown.is_empty() {
            tracing::warn!(fields = %unknown.join(", "), "the audit policy has unknown fields, which are ignored");
        }
        let policy: Self = serde_json::from_value(machinery_schema::without_nulls(json))?;
        policy.check()?;
        Ok(policy)
    }

    fn check(&self) -> Result<(), PolicyError> {
        let invalid = |text: &str| Err(PolicyError::Invalid(text.to_owned()));
        if self.api_version != "audit.k8s.io/v1" || self.kind != "Policy" {
            return invalid("a policy is a Policy of audit.k8s.io/v1");
        }
        if self.rules.is_empty() {
            return invalid("a policy with 0 rules audits nothing");
        }
        for rule in &self.rules {
            let of_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
            if of_resources && !rule.non_resource_urls.is_empty() {
                return invalid("rules cannot apply to both regular resources and non-resource URLs");
            }
            for path in rule.non_resource_urls.iter().filter(|path| *path != "*") {
                let star = path.find('*').is_some_and(|at| at + 1 != path.len());
                if !path.starts_with('/') || star {
                    return invalid(&format!(
                        "nonResourceURLs: {path:?} must begin with '/' and may have a '*' at its end only"
                    ));
                }
            }
            for resources in &rule.resources {
                let group = resources.group.as_str();
                if !["", "*"].contains(&group)
                    && let Some(problem) = dns1123_subdomain(group).into_iter().next()
                {
                    return invalid(&format!("resources.group: {group:?}: {problem}"));
                }
                if !resources.resource_names.is_empty() && resources.resources.is_empty() {
                    return invalid("resourceNames need at least one resource");
                }
            }
        }
        Ok(())
    }

    /// `user` is `None` where no user could be authenticated.
    pub(crate) fn decide(&self, user: Option<&UserInfo>, info: &RequestInfo) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(user, info));
        let of_rule = rule.map_or(&[][..], |rule| &rule.omit_stages);
        Decision {
            level: rule.map_or(Level::None, |rule| rule.level),
            omit_stages: self.omit_stages.iter().chain(of_rule).copied().collect(),
            omit_managed_fields: rule
                .and_then(|rule| rule.omit_managed_fields)
                .unwrap_or(self.omit_managed_fields),
        }
    }
}

const FIELDS: [&str; 6] = [
    "apiVersion",
    "kind",
    "metadata",
    "rules",
    "omitStages",
    "omitManagedFields",
];
const RULE_FIELDS: [&str; 9] = [
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];
const RESOURCE_FIELDS: [&str; 3] = ["group", "resources", "resourceNames"];

/// Paths of the members that no policy has.
fn unknown_fields(policy: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut look = |prefix: &str, value: &Value, known: &[&str]| {
        let names = value.as_object().into_iter().flat_map(|object| object.keys());
        let strange = names.filter(|name| !known.contains(&name.as_str()));
        unknown.extend(strange.map(|name| format!("{prefix}{name}")));
    };
    look("", policy, &FIELDS);
    let items = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    for (at, rule) in items(policy, "rules").iter().enumerate() {
        look(&format!("rules[{at}]."), rule, &RULE_FIELDS);
        for (of, resources) in items(rule, "resources").iter().enumerate() {
            look(
                &format!("rules[{at}].resources[{of}]."),
                resources,
                &RESOURCE_FIELDS,
            );
        }
    }
    unknown
}

fn lists(list: &[String], value: &str) -> bool {
    list.iter().any(|own| own == value)
}

impl Rule {
    fn matches(&self, user: Option<&UserInfo>, info: &RequestInfo) -> bool {
        let user_is = |check: &dyn Fn(&UserInfo) -> bool| user.is_some_and(check);
        if !self.users.is_empty() && !user_is(&|user| lists(&self.users, &user.name)) {
            return false;
        }
        let in_group = |user: &UserInfo| user.groups.iter().any(|group| lists(&self.user_groups, group));
        if !self.user_groups.is_empty() && !user_is(&in_group) {
            return false;
        }
        if !self.verbs.is_empty() && !lists(&self.verbs, &info.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource_request && self.matches_resource(info);
        }
        self.non_resource_urls.is_empty()
            || (!info.is_resource_request
                && self
                    .non_resource_urls
                    .iter()
                    .any(|spec| matches_path(spec, &info.path)))
    }

    fn matches_resource(&self, info: &RequestInfo) -> bool {
        if !self.namespaces.is_empty() && !lists(&self.namespaces, &info.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(info))
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != info.api_group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.resource_names.is_empty() || lists(&self.resource_names, &info.name);
        named && self.resources.iter().any(|spec| matches_resource(spec, info))
    }
}

/// `pods`, `pods/log`, `*`, `*/scale`, `pods/*`.
fn matches_resource(spec: &str, info: &RequestInfo) -> bool {
    let (resource, subresource) = (info.resource.as_str(), info.subresource.as_str());
    if spec == "*" {
        return true;
    }
    match spec.split_once('/') {
        None => subresource.is_empty() && spec == resource,
        Some(("*", of_all)) => !subresource.is_empty() && of_all == subresource,
        Some((own, "*")) => own == resource,
        Some((own, part)) => own == resource && part == subresource,
    }
}

fn matches_path(spec: &str, path: &str) -> bool {
    spec == "*" || spec == path || (spec.ends_with('*') && path.starts_with(spec.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Uri};

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources:
  - group: ""
    resources: [endpoints, services]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", "/version"]
- level: Request
  resources:
  - resources: [configmaps]
    resourceNames: [controller-leader]
  namespaces: [kube-system]
- level: Metadata
  omitManagedFields: false
  resources:
  - resources: [secrets, "pods/*", "*/scale"]
- level: RequestResponse
  resources:
  - group: apps
- level: Metadata
  verbs: [delete]
  omitStages: [ResponseStarted]
"#;

    #[track_caller]
    fn check(user: &str, method: Method, path: &'static str, expected: Level) -> Decision {
        let policy = Policy::parse(POLICY.as_bytes()).unwrap();
        let user = UserInfo::named(user, [UserInfo::AUTHENTICATED]);
        let info = RequestInfo::parse(&method, &Uri::from_static(path)).unwrap();
        let decision = policy.decide(Some(&user), &info);
        assert_eq!(decision.level, expected, "{path}");
        decision
    }

    #[test]
    fn audit_policy_reads_null_as_absent() {
        let null = "{apiVersion: audit.k8s.io/v1, kind: Policy, metadata: , omitStages: , omitManagedFields: , rules: [{level: Metadata, users: , userGroups: , verbs: , resources: [{group: , resources: , resourceNames: }], namespaces: , nonResourceURLs: , omitStages: , omitManagedFields: }]}";
        let absent =
            "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata, resources: [{}]}]}";
        let [null, absent] = [null, absent].map(|text| Policy::parse(text.as_bytes()).unwrap());
        assert_eq!(format!("{null:?}"), format!("{absent:?}"));
    }

    #[test]
    fn audit_policy_rules_match_as_upstreams() {
        use Level::{Metadata, None, Request, RequestResponse};
        let get = || Method::GET;
        check("system:kube-proxy", get(), "/api/v1/services?watch=true", None);
        check("a", get(), "/apis", None);
        check("a", get(), "/version", None);
        check("a", get(), "/metrics", None);
        check(
            "a",
            get(),
            "/api/v1/namespaces/kube-system/configmaps/controller-leader",
            Request,
        );
        check(
            "a",
            get(),
            "/api/v1/namespaces/a/configmaps/controller-leader",
            None,
        );
        check("a", get(), "/api/v1/namespaces/a/secrets/x", Metadata);
        check("a", get(), "/api/v1/namespaces/a/pods/x/log", Metadata);
        check("a", get(), "/api/v1/namespaces/a/pods/x", Metadata);
        check("a", get(), "/api/v1/namespaces/a/pods", Metadata);
        check("a", get(), "/api/v1/namespaces/a/services", None);
        let apps = "/apis/apps/v1/namespaces/a/deployments/x";
        let decision = check("a", get(), apps, RequestResponse);
        assert!(decision.omit_managed_fields);
        let decision = check("a", Method::DELETE, "/api/v1/namespaces/a/services/x", Metadata);
        assert_eq!(
            decision.omit_stages,
            [Stage::RequestReceived, Stage::ResponseStarted]
        );
        assert!(!check("a", get(), "/api/v1/secrets", Metadata).omit_managed_fields);
    }

    #[test]
    fn audit_policy_mistakes_are_errors() {
        let with = |rules: &str| {
            let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n");
            Policy::parse(text.as_bytes())
        };
        assert!(with(r#"[{"level": "Metadata"}]"#).is_ok());
        for wrong in [
            "[]",
            r#"[{"level": "All"}]"#,
            r#"[{"level": "Metadata", "namespaces": ["a"], "nonResourceURLs": ["/a"]}]"#,
            r#"[{"level": "Metadata", "nonResourceURLs": ["a"]}]"#,
            r#"[{"level": "Metadata", "nonResourceURLs": ["/a*b"]}]"#,
            r#"[{"level": "Metadata", "resources": [{"resourceNames": ["a"]}]}]"#,
            r#"[{"level": "Metadata", "resources": [{"group": "apps/v1"}]}]"#,
        ] {
            assert!(with(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn audit_policy_unknown_fields_are_named_and_ignored() {
        let text = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omit": 1, "rules": [
            {"level": "Metadata", "user": ["a"], "resources": [{"group": "", "Resources": []}]}]}"#;
        let json = serde_json::from_str(text).unwrap();
        let unknown = unknown_fields(&json);
        assert_eq!(
            unknown,
            ["omit", "rules[0].user", "rules[0].resources[0].Resources"]
        );
        let policy = Policy::parse(text.as_bytes()).unwrap();
        assert!(policy.rules[0].users.is_empty());
    }
}
