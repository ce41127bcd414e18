//! `Configuration` of `eventratelimit.admission.k8s.io/v1alpha1`.

use machinery_meta::field::{FieldError, FieldPath};
use machinery_schema::without_nulls;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

const API_VERSION: &str = "eventratelimit.admission.k8s.io/v1alpha1";
const KIND: &str = "Configuration";
/// Buckets of a limit whose `cacheSize` is 0.
const DEFAULT_BUCKETS: usize = 4_096;

/// Limits, each of them valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration(Vec<Limit>);

/// A rate for each key of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub limit_type: LimitType,
    /// Events per second.
    pub qps: i32,
    /// Events at once.
    pub burst: i32,
    /// Buckets that are remembered; 4,096 at 0.
    pub cache_size: i32,
}

/// The unit that has a token bucket of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitType {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

/// A configuration that cannot be used; words are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    #[error(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
    )]
    Kind { kind: String, api_version: String },
    #[error("{0}")]
    Form(String),
    #[error("{0}")]
    Invalid(String),
}

/// The configuration as it is written.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    limits: Option<Vec<WrittenLimit>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct WrittenLimit {
    r#type: String,
    qps: i32,
    burst: i32,
    cache_size: i32,
}

impl LimitType {
    const ALL: [Self; 4] = [Self::Server, Self::Namespace, Self::User, Self::SourceAndObject];

    fn as_str(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.as_str() == text)
    }
}

impl fmt::Display for LimitType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Limit {
    /// Buckets that are remembered.
    pub(super) fn buckets(&self) -> usize {
        match usize::try_from(self.cache_size) {
            Ok(0) | Err(_) => DEFAULT_BUCKETS,
            Ok(size) => size,
        }
    }
}

impl Configuration {
    /// Reads a configuration; without one there are no limits, which is refused.
    pub fn parse(written: Option<&Value>) -> Result<Self, ConfigurationError> {
        let Some(written) = written else {
            return Self::checked(None);
        };
        let text = |member: &str| written.get(member).and_then(Value::as_str).unwrap_or_default();
        if (text("apiVersion"), text("kind")) != (API_VERSION, KIND) {
            return Err(ConfigurationError::Kind {
                kind: text("kind").to_owned(),
                api_version: text("apiVersion").to_owned(),
            });
        }
        let written = Written::deserialize(without_nulls(written.clone()));
        let written = written.map_err(|error| ConfigurationError::Form(error.to_string()))?;
        Self::checked(written.limits)
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    /// The limits, in their order.
    pub fn limits(&self) -> &[Limit] {
        &self.0
    }

    fn checked(written: Option<Vec<WrittenLimit>>) -> Result<Self, ConfigurationError> {
        let path = FieldPath::new("limits");
        let (mut limits, mut problems) = (Vec::new(), Vec::new());
        let is_absent = written.is_none();
        let written = written.unwrap_or_default();
        if written.is_empty() {
            let shown = if is_absent { "null" } else { "[]" };
            let problem = FieldError::invalid(
                &path,
                machinery_meta::field::Shown(shown.to_owned()),
                "must not be empty",
            );
            problems.push(problem);
        }
        for (at, limit) in written.iter().enumerate() {
            limits.extend(limit.check(&path.index(at), &mut problems));
        }
        match &problems[..] {
            [] => Ok(Self(limits)),
            [one] => Err(ConfigurationError::Invalid(one.to_string())),
            several => {
                let several: Vec<String> = several.iter().map(FieldError::to_string).collect();
                Err(ConfigurationError::Invalid(format!("[{}]", several.join(", "))))
            }
        }
    }
}

impl WrittenLimit {
    fn check(&self, path: &FieldPath, problems: &mut Vec<FieldError>) -> Option<Limit> {
        let limit_type = LimitType::parse(&self.r#type);
        if limit_type.is_none() {
            let supported = LimitType::ALL.map(LimitType::as_str);
            problems.push(FieldError::not_supported(
                &path.child("type"),
                self.r#type.as_str(),
                &supported,
            ));
        }
        for (name, value) in [("burst", self.burst), ("qps", self.qps)] {
            if value <= 0 {
                problems.push(FieldError::invalid(
                    &path.child(name),
                    i64::from(value),
                    "must be positive",
                ));
            }
        }
        if limit_type != Some(LimitType::Server) && self.cache_size < 0 {
            let path = path.child("cacheSize");
            problems.push(FieldError::invalid(
                &path,
                i64::from(self.cache_size),
                "must not be negative",
            ));
        }
        Some(Limit {
            limit_type: limit_type?,
            qps: self.qps,
            burst: self.burst,
            cache_size: self.cache_size,
        })
    }
}
