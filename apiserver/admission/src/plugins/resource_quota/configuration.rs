//! `ResourceQuotaConfiguration`: usage that is refused without a quota for it.

use machinery_schema::without_nulls;
use machinery_semantics::quota::{LimitedResource, ScopeSelector};
use serde::Deserialize;
use serde_json::Value;

/// Versions and kinds that upstream reads.
const KINDS: [(&str, &str); 4] = [
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
];

/// The plugin's configuration; without one nothing is limited by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    pub(super) limited: Vec<LimitedResource>,
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
    #[error("limitedResources[{0}].resource: Required value")]
    NoResource(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    limited_resources: Option<Vec<WrittenResource>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WrittenResource {
    api_group: String,
    resource: String,
    match_contains: Option<Vec<String>>,
    match_scopes: Option<Vec<WrittenScope>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WrittenScope {
    scope_name: String,
    operator: String,
    values: Option<Vec<String>>,
}

impl Configuration {
    /// Reads a configuration.
    pub fn parse(written: Option<&Value>) -> Result<Self, ConfigurationError> {
        let Some(written) = written else {
            return Ok(Self::default());
        };
        let text = |member: &str| written.get(member).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if !KINDS.contains(&(api_version, kind)) {
            return Err(ConfigurationError::Kind {
                kind: kind.to_owned(),
                api_version: api_version.to_owned(),
            });
        }
        let written = Written::deserialize(without_nulls(written.clone()));
        let written = written.map_err(|error| ConfigurationError::Form(error.to_string()))?;
        let resources = written.limited_resources.unwrap_or_default();
        let limited = resources.into_iter().enumerate().map(|(at, own)| own.checked(at));
        Ok(Self {
            limited: limited.collect::<Result<_, _>>()?,
        })
    }
}

impl WrittenResource {
    fn checked(self, at: usize) -> Result<LimitedResource, ConfigurationError> {
        if self.resource.is_empty() {
            return Err(ConfigurationError::NoResource(at));
        }
        let scopes = self
            .match_scopes
            .unwrap_or_default()
            .into_iter()
            .map(|own| ScopeSelector {
                scope: own.scope_name,
                operator: own.operator,
                values: own.values.unwrap_or_default(),
            });
        Ok(LimitedResource {
            group: self.api_group,
            resource: self.resource,
            match_contains: self.match_contains.unwrap_or_default(),
            match_scopes: scopes.collect(),
        })
    }
}
