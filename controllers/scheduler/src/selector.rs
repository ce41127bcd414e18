//! Matching of node selectors and label selectors, by upstream's rules.

use crate::object::{LabelSelector, Labels, NodeSelector, NodeSelectorTerm, Requirement};

/// Reports whether the label's value satisfies the requirement. A missing key satisfies `NotIn` and `DoesNotExist`
/// only.
pub(crate) fn requirement_matches(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = |value: &str| {
        requirement
            .values
            .binary_search_by(|own| (**own).cmp(value))
            .is_ok()
    };
    match &*requirement.operator {
        "In" => value.is_some_and(listed),
        "NotIn" => value.is_none_or(|value| !listed(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(value, requirement, |left, right| left > right),
        "Lt" => compare(value, requirement, |left, right| left < right),
        _ => false,
    }
}

fn compare(value: Option<&str>, requirement: &Requirement, holds: fn(i64, i64) -> bool) -> bool {
    let right = requirement.values.first().and_then(|text| text.parse().ok());
    match (value.and_then(|text| text.parse().ok()), right) {
        (Some(left), Some(right)) => holds(left, right),
        _ => false,
    }
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
    selector
        .node_selector_terms
        .iter()
        .any(|term| node_term_matches(term, name, labels))
}

/// All requirements of one term; see [`node_selector_matches`].
pub(crate) fn node_term_matches(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return false;
    }
    let label = |one: &Requirement| requirement_matches(one, labels.get(&one.key));
    let field = |one: &Requirement| &*one.key == "metadata.name" && requirement_matches(one, Some(name));
    term.match_expressions.iter().all(label) && term.match_fields.iter().all(field)
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
