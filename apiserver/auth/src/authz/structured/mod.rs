//! `AuthorizationConfiguration`: the authorizers in their order, webhooks among them.
//!
//! A file is [decoded](AuthorizationConfiguration::decode) and then [compiled](AuthorizationConfiguration::compile): checked as
//! upstream does, every problem with its field, and its conditions made ready. The flags `--authorization-*` make the same object.

mod validation;

pub use super::webhook::MatchConditions;

#[cfg(test)]
mod tests;

use crate::authn::structured::ConfigurationProblems;
use crate::configuration::{DecodeError, Kind, Shape, or_default};
use machinery_schema::leaf;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use std::time::Duration;

/// The modes, by name.
pub const AUTHORIZATION_MODES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
/// The only one of which there may be several.
const WEBHOOK: &str = "Webhook";

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuthorizationConfiguration {
    #[serde(deserialize_with = "or_default")]
    pub authorizers: Vec<AuthorizerConfiguration>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuthorizerConfiguration {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub webhook: Option<WebhookConfiguration>,
}

/// A webhook; times and caching have upstream's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WebhookConfiguration {
    #[serde(rename = "authorizedTTL", deserialize_with = "five_minutes")]
    pub authorized_ttl: GoDuration,
    #[serde(deserialize_with = "or_true")]
    pub cache_authorized_requests: bool,
    #[serde(rename = "unauthorizedTTL", deserialize_with = "half_a_minute")]
    pub unauthorized_ttl: GoDuration,
    #[serde(deserialize_with = "or_true")]
    pub cache_unauthorized_requests: bool,
    #[serde(deserialize_with = "or_default")]
    pub timeout: GoDuration,
    #[serde(deserialize_with = "or_default")]
    pub subject_access_review_version: String,
    #[serde(deserialize_with = "or_default")]
    pub match_condition_subject_access_review_version: String,
    #[serde(deserialize_with = "or_default")]
    pub failure_policy: String,
    #[serde(deserialize_with = "or_default")]
    pub connection_info: ConnectionInfo,
    #[serde(deserialize_with = "or_default")]
    pub match_conditions: Vec<MatchCondition>,
}

impl Default for WebhookConfiguration {
    fn default() -> Self {
        Self {
            authorized_ttl: FIVE_MINUTES,
            cache_authorized_requests: true,
            unauthorized_ttl: HALF_A_MINUTE,
            cache_unauthorized_requests: true,
            timeout: GoDuration::default(),
            subject_access_review_version: String::new(),
            match_condition_subject_access_review_version: String::new(),
            failure_policy: String::new(),
            connection_info: ConnectionInfo::default(),
            match_conditions: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConnectionInfo {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    pub kube_config_file: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MatchCondition {
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
}

/// Nanoseconds, written as Go does: `30s`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

const FIVE_MINUTES: GoDuration = GoDuration::of_seconds(300);
const HALF_A_MINUTE: GoDuration = GoDuration::of_seconds(30);

impl GoDuration {
    pub const fn of_seconds(seconds: i64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// One that is below 0 is none.
    fn time(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or_default())
    }

    fn text(self) -> String {
        leaf::write_duration(self.0)
    }
}

impl From<Duration> for GoDuration {
    fn from(own: Duration) -> Self {
        Self(i64::try_from(own.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = leaf::parse_duration(&text);
        parsed.map(Self).map_err(serde::de::Error::custom)
    }
}

fn with_default<'de, D: Deserializer<'de>>(
    deserializer: D,
    default: GoDuration,
) -> Result<GoDuration, D::Error> {
    let given = Option::<GoDuration>::deserialize(deserializer)?;
    Ok(given.filter(|own| own.0 != 0).unwrap_or(default))
}

fn five_minutes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    with_default(deserializer, FIVE_MINUTES)
}

fn half_a_minute<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    with_default(deserializer, HALF_A_MINUTE)
}

fn or_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(true))
}

/// An authorizer that was checked.
#[derive(Debug)]
pub enum AuthorizerRules {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Abac,
    Webhook(WebhookRules),
}

impl AuthorizerRules {
    /// The name in the configuration.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Node => "Node",
            Self::Rbac => "RBAC",
            Self::Abac => "ABAC",
            Self::Webhook(_) => WEBHOOK,
        }
    }
}

/// A webhook that was checked, with its conditions.
#[derive(Debug)]
pub struct WebhookRules {
    pub name: String,
    /// Zero where they are not remembered.
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub timeout: Duration,
    /// Of SubjectAccessReview: `v1` or `v1beta1`.
    pub version: String,
    /// A webhook that fails denies; otherwise it has no opinion.
    pub denies_on_failure: bool,
    pub kubeconfig: PathBuf,
    pub conditions: MatchConditions,
}

const CONNECTION: Shape = Shape::Object(&[("type", Shape::Leaf), ("kubeConfigFile", Shape::Leaf)]);

const HOOK: Shape = Shape::Object(&[
    ("authorizedTTL", Shape::Leaf),
    ("cacheAuthorizedRequests", Shape::Leaf),
    ("unauthorizedTTL", Shape::Leaf),
    ("cacheUnauthorizedRequests", Shape::Leaf),
    ("timeout", Shape::Leaf),
    ("subjectAccessReviewVersion", Shape::Leaf),
    ("matchConditionSubjectAccessReviewVersion", Shape::Leaf),
    ("failurePolicy", Shape::Leaf),
    ("connectionInfo", CONNECTION),
    (
        "matchConditions",
        Shape::List(&Shape::Object(&[("expression", Shape::Leaf)])),
    ),
]);

const AUTHORIZER: Shape = Shape::Object(&[("type", Shape::Leaf), ("name", Shape::Leaf), ("webhook", HOOK)]);

const KIND: Kind = Kind {
    name: "AuthorizationConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
    shape: Shape::Object(&[
        ("apiVersion", Shape::Leaf),
        ("kind", Shape::Leaf),
        ("authorizers", Shape::List(&AUTHORIZER)),
    ]),
};

impl AuthorizationConfiguration {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no object of this kind, or has fields that the kind has not.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        KIND.decode(text)
    }

    /// Checks the object and makes its conditions ready.
    ///
    /// # Errors
    /// Every problem, in upstream's order.
    pub fn compile(&self) -> Result<Vec<AuthorizerRules>, ConfigurationProblems> {
        validation::compile(self)
    }

    /// Names that are not those of their modes, in upstream's words.
    pub fn misnamed(&self) -> Vec<String> {
        let fixed = self.authorizers.iter().filter(|own| own.kind != WEBHOOK);
        let misnamed = fixed.filter(|own| own.name != own.kind.to_lowercase());
        misnamed
            .map(|own| {
                format!(
                    "expected name {} for authorizer {} instead of {}",
                    own.kind.to_lowercase(),
                    own.kind,
                    own.name
                )
            })
            .collect()
    }
}
