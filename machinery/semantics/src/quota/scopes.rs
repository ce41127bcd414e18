//! Scopes of quotas.

use k8s_openapi::api::core::v1::{ResourceQuotaSpec, ScopedResourceSelectorRequirement};
use std::fmt;

/// A requirement on the objects that count against a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeSelector {
    /// `Terminating`, `PriorityClass` and so on.
    pub scope: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    pub values: Vec<String>,
}

impl ScopeSelector {
    /// The scope, by whatever value.
    pub fn exists(scope: &str) -> Self {
        Self {
            scope: scope.to_owned(),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        }
    }

    /// Every requirement of a quota.
    pub(super) fn all(spec: &ResourceQuotaSpec) -> Vec<Self> {
        let plain = spec.scopes.iter().flatten().map(|scope| Self::exists(scope));
        let selector = spec.scope_selector.as_ref();
        let expressions = selector.and_then(|own| own.match_expressions.as_ref());
        plain
            .chain(expressions.into_iter().flatten().map(Self::from))
            .collect()
    }

    /// Reports whether an object with one of these values under the scope's key, or with none, is meant.
    pub(super) fn selects(&self, values: &[impl AsRef<str>]) -> Result<bool, String> {
        let named = || {
            let mut values = values.iter();
            values.any(|value| self.values.iter().any(|own| own == value.as_ref()))
        };
        match self.operator.as_str() {
            "In" => Ok(named()),
            // Of several values one that is not named is enough, as upstream asks each by itself.
            "NotIn" => Ok(values.is_empty()
                || values
                    .iter()
                    .any(|value| !self.values.iter().any(|own| own == value.as_ref()))),
            "Exists" => Ok(!values.is_empty()),
            "DoesNotExist" => Ok(values.is_empty()),
            other => Err(format!(
                "failed to parse and convert selector: {other:?} is not a valid scope selector operator"
            )),
        }
    }
}

impl From<&ScopedResourceSelectorRequirement> for ScopeSelector {
    fn from(own: &ScopedResourceSelectorRequirement) -> Self {
        Self {
            scope: own.scope_name.clone(),
            operator: own.operator.clone(),
            values: own.values.clone().unwrap_or_default(),
        }
    }
}

/// As Go prints the struct.
impl fmt::Display for ScopeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.join(" ");
        write!(f, "{{{} {} [{values}]}}", self.scope, self.operator)
    }
}
