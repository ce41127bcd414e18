//! `AuthenticationConfiguration`: the issuers whose tokens are accepted, users made of their claims, and anonymous requests.
//!
//! A file is [decoded](AuthenticationConfiguration::decode) and then [compiled](AuthenticationConfiguration::compile): checked as
//! upstream does, every problem with its field, and its expressions made ready. The flags `--oidc-*` make the same object.

mod expressions;
mod rules;
mod url;
mod validation;

#[cfg(test)]
mod tests;

pub(crate) use expressions::{Expression, string_list};
pub use rules::JwtRules;
pub(crate) use rules::{ClaimRule, ExtraRule, Mapping, UserRule};

use crate::configuration::{DecodeError, Kind, Shape, or_default};
use machinery_meta::FieldError;
use serde::{Deserialize, Serialize};

/// Fields that are wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", crate::aggregated(.0.iter().map(ToString::to_string)).unwrap_or_default())]
pub struct ConfigurationProblems(pub Vec<FieldError>);

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AuthenticationConfiguration {
    #[serde(deserialize_with = "or_default")]
    pub jwt: Vec<JwtAuthenticator>,
    pub anonymous: Option<AnonymousAuthConfig>,
}

/// Anonymous requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AnonymousAuthConfig {
    #[serde(deserialize_with = "or_default")]
    pub enabled: bool,
    /// Paths of requests that are let through; all where there are none.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<AnonymousAuthCondition>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct AnonymousAuthCondition {
    #[serde(deserialize_with = "or_default", rename(serialize = "Path"))]
    pub path: String,
}

/// One issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JwtAuthenticator {
    #[serde(deserialize_with = "or_default")]
    pub issuer: Issuer,
    #[serde(deserialize_with = "or_default")]
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    #[serde(deserialize_with = "or_default")]
    pub claim_mappings: ClaimMappings,
    #[serde(deserialize_with = "or_default")]
    pub user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Issuer {
    #[serde(deserialize_with = "or_default")]
    pub url: String,
    #[serde(rename = "discoveryURL", deserialize_with = "or_default")]
    pub discovery_url: String,
    /// In PEM; this machine's authorities where it is empty.
    #[serde(deserialize_with = "or_default")]
    pub certificate_authority: String,
    #[serde(deserialize_with = "or_default")]
    pub audiences: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub audience_match_policy: String,
    #[serde(deserialize_with = "or_default")]
    pub egress_selector_type: String,
}

/// A claim with a value, or an expression that must be true.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimValidationRule {
    #[serde(deserialize_with = "or_default")]
    pub claim: String,
    #[serde(deserialize_with = "or_default")]
    pub required_value: String,
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimMappings {
    #[serde(deserialize_with = "or_default")]
    pub username: PrefixedClaimOrExpression,
    #[serde(deserialize_with = "or_default")]
    pub groups: PrefixedClaimOrExpression,
    #[serde(deserialize_with = "or_default")]
    pub uid: ClaimOrExpression,
    #[serde(deserialize_with = "or_default")]
    pub extra: Vec<ExtraMapping>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PrefixedClaimOrExpression {
    #[serde(deserialize_with = "or_default")]
    pub claim: String,
    pub prefix: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimOrExpression {
    #[serde(deserialize_with = "or_default")]
    pub claim: String,
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExtraMapping {
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    #[serde(deserialize_with = "or_default")]
    pub value_expression: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserValidationRule {
    #[serde(deserialize_with = "or_default")]
    pub expression: String,
    #[serde(deserialize_with = "or_default")]
    pub message: String,
}

const PREFIXED: Shape = Shape::Object(&[
    ("claim", Shape::Leaf),
    ("prefix", Shape::Leaf),
    ("expression", Shape::Leaf),
]);

const MAPPINGS: Shape = Shape::Object(&[
    ("username", PREFIXED),
    ("groups", PREFIXED),
    (
        "uid",
        Shape::Object(&[("claim", Shape::Leaf), ("expression", Shape::Leaf)]),
    ),
    (
        "extra",
        Shape::List(&Shape::Object(&[
            ("key", Shape::Leaf),
            ("valueExpression", Shape::Leaf),
        ])),
    ),
]);

const ISSUER: Shape = Shape::Object(&[
    ("url", Shape::Leaf),
    ("discoveryURL", Shape::Leaf),
    ("certificateAuthority", Shape::Leaf),
    ("audiences", Shape::Leaf),
    ("audienceMatchPolicy", Shape::Leaf),
    ("egressSelectorType", Shape::Leaf),
]);

const CLAIM_RULE: Shape = Shape::Object(&[
    ("claim", Shape::Leaf),
    ("requiredValue", Shape::Leaf),
    ("expression", Shape::Leaf),
    ("message", Shape::Leaf),
]);

const USER_RULE: Shape = Shape::Object(&[("expression", Shape::Leaf), ("message", Shape::Leaf)]);

const JWT: Shape = Shape::Object(&[
    ("issuer", ISSUER),
    ("claimValidationRules", Shape::List(&CLAIM_RULE)),
    ("claimMappings", MAPPINGS),
    ("userValidationRules", Shape::List(&USER_RULE)),
]);

const ANONYMOUS: Shape = Shape::Object(&[
    ("enabled", Shape::Leaf),
    (
        "conditions",
        Shape::List(&Shape::Object(&[("path", Shape::Leaf)])),
    ),
]);

const KIND: Kind = Kind {
    name: "AuthenticationConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
    shape: Shape::Object(&[
        ("apiVersion", Shape::Leaf),
        ("kind", Shape::Leaf),
        ("jwt", Shape::List(&JWT)),
        ("anonymous", ANONYMOUS),
    ]),
};

impl AuthenticationConfiguration {
    /// Reads a file.
    ///
    /// # Errors
    /// It is no object of this kind, or has fields that the kind has not.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        KIND.decode(text)
    }

    /// Checks the object and makes its expressions ready. Issuers of service account tokens cannot be issuers of others.
    ///
    /// # Errors
    /// Every problem, in upstream's order.
    pub fn compile(&self, disallowed_issuers: &[String]) -> Result<Vec<JwtRules>, ConfigurationProblems> {
        validation::compile(self, disallowed_issuers)
    }
}
