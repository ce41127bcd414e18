//! Matching of node selectors and label selectors, by upstream's rules.

use crate::object::{LabelSelector, Labels, NodeSelector, NodeSelectorTerm, Requirement};
use machinery_semantics::node_affinity::{self, NodeFacts};

impl node_affinity::Requirement for Requirement {
    fn key(&self) -> &str {
        &self.key
    }

    fn holds(&self, value: Option<&str>) -> bool {
        requirement_matches(self, value)
    }
}

impl node_affinity::Term for NodeSelectorTerm {
    type Requirement = Requirement;

    fn expressions(&self) -> &[Requirement] {
        &self.match_expressions
    }

    fn fields(&self) -> &[Requirement] {
        &self.match_fields
    }
}

/// Reports whether the label's value satisfies the requirement. A missing key satisfies `NotIn` and `DoesNotExist`
/// only.
pub(crate) fn requirement_matches(requirement: &Requirement, value: Option<&str>) -> bool {
    let values = &requirement.values;
    let is_listed = |value: &str| values.binary_search_by(|own| (**own).cmp(value)).is_ok();
    requirement_holds(requirement, value, is_listed)
}

/// The same where the caller looks values up among the requirement's.
pub(crate) fn requirement_holds(
    requirement: &Requirement,
    value: Option<&str>,
    is_listed: impl Fn(&str) -> bool,
) -> bool {
    let bound = requirement
        .values
        .first()
        .filter(|_| requirement.values.len() == 1);
    node_affinity::holds(&requirement.operator, value, is_listed, bound.map(|own| &**own))
}

/// A label selector; `None` selects nothing, an empty one everything.
pub(crate) fn labels_match(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    selector
        .match_labels
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && selector
            .match_expressions
            .iter()
            .all(|one| requirement_matches(one, labels.get(&one.key)))
}

/// A node selector: any of its terms. A term without requirements matches nothing.
pub(crate) fn node_selector_matches(selector: &NodeSelector, name: &str, labels: &Labels) -> bool {
    let terms = &selector.node_selector_terms;
    terms.iter().any(|term| node_term_matches(term, name, labels))
}

/// All requirements of one term; see [`node_selector_matches`].
pub(crate) fn node_term_matches(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let labels = |key: &str| labels.get(key);
    NodeFacts { name, labels }.matches_term(term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(requirement: &str, value: Option<&str>, expected: bool) {
        let requirement: Requirement = serde_json::from_str(requirement).unwrap();
        assert_eq!(
            requirement_matches(&requirement, value),
            expected,
            "{requirement:?} {value:?}"
        );
    }

    #[test]
    fn requirements() {
        let r#in = r#"{"key":"a","operator":"In","values":["x","y"]}"#;
        check(r#in, Some("x"), true);
        check(r#in, Some("z"), false);
        check(r#in, None, false);
        check(
            r#"{"key":"a","operator":"In","values":["z","y","x"]}"#,
            Some("x"),
            true,
        );
        let not_in = r#"{"key":"a","operator":"NotIn","values":["x"]}"#;
        check(not_in, Some("x"), false);
        check(not_in, None, true);
        check(r#"{"key":"a","operator":"Exists"}"#, None, false);
        check(r#"{"key":"a","operator":"DoesNotExist"}"#, None, true);
        check(r#"{"key":"a","operator":"Gt","values":["5"]}"#, Some("6"), true);
        check(r#"{"key":"a","operator":"Lt","values":["5"]}"#, Some("x"), false);
    }

    #[test]
    fn selector_empty_term_matches_nothing() {
        let selector: NodeSelector = serde_json::from_str(r#"{"nodeSelectorTerms":[{}]}"#).unwrap();
        assert!(!node_selector_matches(&selector, "n", &Labels::default()));
        assert!(labels_match(Some(&LabelSelector::default()), &Labels::default()));
        assert!(!labels_match(None, &Labels::default()));
    }
}
