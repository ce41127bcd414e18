//! Nodes that a pod requires: `nodeSelector` and node affinity.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

/// The only field that a term may name.
const NAME: &str = "metadata.name";

/// A node as affinity sees it.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a, L> {
    /// The node's name.
    pub name: &'a str,
    /// Its labels.
    pub labels: L,
}

/// A requirement of a node selector, in the form in which its reader keeps it.
pub trait Requirement {
    /// The label or field that it is about.
    fn key(&self) -> &str;

    /// Reports whether a value (or its absence) meets it: [`holds`].
    fn holds(&self, value: Option<&str>) -> bool;
}

/// A term of a node selector, in the form in which its reader keeps it.
pub trait Term {
    /// Its requirements.
    type Requirement: Requirement;

    /// Requirements of labels.
    fn expressions(&self) -> &[Self::Requirement];

    /// Requirements of fields.
    fn fields(&self) -> &[Self::Requirement];
}

impl<'a, L: Fn(&str) -> Option<&'a str>> NodeFacts<'a, L> {
    /// `nodeSelector` and the required node affinity both hold.
    pub fn satisfies(&self, spec: &PodSpec) -> bool {
        let selector = spec.node_selector.iter().flatten();
        selector
            .into_iter()
            .all(|(key, value)| (self.labels)(key) == Some(value.as_str()))
            && required(spec.affinity.as_ref()).is_none_or(|own| self.matches(&own.node_selector_terms))
    }

    /// Any term matches.
    pub fn matches<T: Term>(&self, terms: &[T]) -> bool {
        terms.iter().any(|term| self.matches_term(term))
    }

    /// All requirements of the term hold; a term without any matches no node.
    pub fn matches_term<T: Term>(&self, term: &T) -> bool {
        self.matches_term_by(term, |_, own, value| own.holds(value))
    }

    /// The same where the caller compares a requirement, by its place in the term (labels first, then fields), with the
    /// node's value.
    pub fn matches_term_by<T: Term>(
        &self,
        term: &T,
        holds: impl Fn(usize, &T::Requirement, Option<&str>) -> bool,
    ) -> bool {
        let (labels, fields) = (term.expressions(), term.fields());
        if labels.is_empty() && fields.is_empty() {
            return false;
        }
        let mut of_fields = (labels.len()..).zip(fields);
        labels
            .iter()
            .enumerate()
            .all(|(at, own)| holds(at, own, (self.labels)(own.key())))
            && of_fields.all(|(at, own)| own.key() == NAME && holds(at, own, Some(self.name)))
    }
}

impl Term for NodeSelectorTerm {
    type Requirement = NodeSelectorRequirement;

    fn expressions(&self) -> &[NodeSelectorRequirement] {
        self.match_expressions.as_deref().unwrap_or_default()
    }

    fn fields(&self) -> &[NodeSelectorRequirement] {
        self.match_fields.as_deref().unwrap_or_default()
    }
}

impl Requirement for NodeSelectorRequirement {
    fn key(&self) -> &str {
        &self.key
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let listed = self.values.as_deref().unwrap_or_default();
        let bound = listed.first().filter(|_| listed.len() == 1);
        holds(
            &self.operator,
            value,
            |value| listed.iter().any(|own| own == value),
            bound.map(String::as_str),
        )
    }
}

/// The required node selector of a pod's affinity.
pub fn required(affinity: Option<&Affinity>) -> Option<&NodeSelector> {
    affinity?
        .node_affinity
        .as_ref()?
        .required_during_scheduling_ignored_during_execution
        .as_ref()
}

/// Reports whether a value (or its absence) meets a requirement with this operator. `is_listed` looks a value up among the
/// requirement's; `bound` is the one value that `Gt` and `Lt` compare with, nothing where there is not exactly one.
pub fn holds(
    operator: &str,
    value: Option<&str>,
    is_listed: impl Fn(&str) -> bool,
    bound: Option<&str>,
) -> bool {
    let number = |rule: fn(&i64, &i64) -> bool| {
        let have = value.and_then(|value| value.parse().ok());
        let want = bound.and_then(|bound| bound.parse().ok());
        have.zip(want).is_some_and(|(have, want)| rule(&have, &want))
    };
    match operator {
        "In" => value.is_some_and(is_listed),
        "NotIn" => value.is_none_or(|value| !is_listed(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(i64::gt),
        "Lt" => number(i64::lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(spec: serde_json::Value, expected: bool) {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let labels = |key: &str| match key {
            "zone" => Some("a"),
            "cores" => Some("8"),
            _ => None,
        };
        assert_eq!(
            NodeFacts { name: "n1", labels }.satisfies(&spec),
            expected,
            "{spec:?}"
        );
    }

    fn affinity(term: serde_json::Value) -> serde_json::Value {
        let required = json!({"nodeSelectorTerms": [term]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    #[test]
    fn selectors_and_terms() {
        let label = |key: &str, operator: &str, values: &[&str]| {
            affinity(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        check(json!({}), true);
        check(json!({"nodeSelector": {"zone": "a"}}), true);
        check(json!({"nodeSelector": {"zone": "b"}}), false);
        check(affinity(json!({})), false);
        check(label("zone", "In", &["a", "b"]), true);
        check(label("zone", "NotIn", &["a"]), false);
        check(label("none", "NotIn", &["a"]), true);
        check(label("none", "DoesNotExist", &[]), true);
        check(label("cores", "Gt", &["4"]), true);
        check(label("cores", "Lt", &["8"]), false);
        check(label("cores", "Gt", &["4", "5"]), false);
        let field = |name: &str| {
            affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}))
        };
        check(field("n1"), true);
        check(field("n2"), false);
    }
}
