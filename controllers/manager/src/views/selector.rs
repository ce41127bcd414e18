//! The selector of a workload: what is written as pairs stays packed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector as ApiSelector, LabelSelectorRequirement,
};
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::{ObjectHeader, TextMap};
use serde::{Deserialize, Deserializer};
use std::sync::Arc;

/// `spec.selector` of a workload. One that is absent or cannot be compiled matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    pairs: TextMap,
    /// `None` matches nothing.
    expressions: Option<Arc<LabelSelector>>,
}

impl Selector {
    /// The selector of these pairs; none of them matches nothing.
    pub fn of_pairs(pairs: TextMap) -> Self {
        Self {
            expressions: (!pairs.is_empty()).then(Arc::default),
            pairs,
        }
    }

    /// Reports whether it selects the object.
    pub fn matches(&self, header: &ObjectHeader) -> bool {
        let Some(expressions) = &self.expressions else {
            return false;
        };
        self.pairs
            .iter()
            .all(|(name, value)| header.label(name) == Some(value))
            && expressions.matches(header)
    }

    /// Comparisons that a check of one object takes, at most.
    pub fn comparisons(&self) -> usize {
        let expressions = self.expressions.as_ref();
        1 + self.pairs.len() + expressions.map_or(0, |own| own.requirements().len())
    }

    /// Reports whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.pairs.is_empty() && self.expressions.as_ref().is_some_and(|own| own.is_everything())
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Written {
            #[serde(default)]
            match_labels: Option<TextMap>,
            #[serde(default)]
            match_expressions: Option<Vec<LabelSelectorRequirement>>,
        }
        let Some(written) = Option::<Written>::deserialize(deserializer)? else {
            return Ok(Self::default());
        };
        let api = ApiSelector {
            match_labels: None,
            match_expressions: written.match_expressions,
        };
        Ok(Self {
            pairs: written.match_labels.unwrap_or_default(),
            expressions: machinery_semantics::selectors::from_api(Some(&api))
                .ok()
                .flatten()
                .map(Arc::new),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_wants_all_pairs_and_all_expressions() {
        let header = |labels: &[(&str, &str)]| ObjectHeader {
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            ..ObjectHeader::default()
        };
        let both = r#"{"matchLabels":{"a":"1"},"matchExpressions":[{"key":"b","operator":"Exists"}]}"#;
        for (json, labels, expected) in [
            (both, &[("a", "1"), ("b", "")][..], true),
            (both, &[("a", "2"), ("b", "")], false),
            (both, &[("a", "1")], false),
            ("{}", &[], true),
            ("null", &[], false),
            (
                r#"{"matchExpressions":[{"key":"b","operator":"Odd"}]}"#,
                &[("b", "")],
                false,
            ),
        ] {
            let selector: Selector = serde_json::from_str(json).unwrap();
            assert_eq!(selector.matches(&header(labels)), expected, "{json} {labels:?}");
            assert_eq!(selector.is_everything(), json == "{}", "{json}");
        }
        assert!(!Selector::default().matches(&header(&[])));
    }
}
