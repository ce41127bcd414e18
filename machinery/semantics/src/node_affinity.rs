//! Nodes that a pod requires: `nodeSelector` and node affinity.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

/// A node as affinity sees it.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a, L> {
    /// The node's name, the only field a term may request.
    pub name: &'a str,
    /// Its labels.
    pub labels: L,
}

impl<'a, L: Fn(&str) -> Option<&'a str>> NodeFacts<'a, L> {
    /// `nodeSelector` and the required node affinity both hold.
    pub fn satisfies(&self, spec: &PodSpec) -> bool {
        let selector = spec.node_selector.iter().flatten();
        selector
            .into_iter()
            .all(|(key, value)| (self.labels)(key) == Some(value.as_str()))
            && required(spec.affinity.as_ref()).is_none_or(|terms| self.matches(terms))
    }

    /// Any term matches.
    pub fn matches(&self, selector: &NodeSelector) -> bool {
        selector
            .node_selector_terms
            .iter()
            .any(|term| self.matches_term(term))
    }

    /// All requirements of the term hold; a term without any matches no node.
    pub fn matches_term(&self, term: &NodeSelectorTerm) -> bool {
        let (labels, fields) = (
            term.match_expressions.iter().flatten(),
            term.match_fields.iter().flatten(),
        );
        if labels.clone().next().is_none() && fields.clone().next().is_none() {
            return false;
        }
        labels.into_iter().all(|own| holds(own, (self.labels)(&own.key)))
            && fields
                .into_iter()
                .all(|own| own.key == "metadata.name" && holds(own, Some(self.name)))
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

/// Reports whether a value (or its absence) meets a requirement.
pub fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let wanted = requirement.values.as_deref().unwrap_or(&[]);
    let listed = || value.is_some_and(|value| wanted.iter().any(|own| own == value));
    let number = |rule: fn(&i64, &i64) -> bool| {
        let have = value.and_then(|value| value.parse::<i64>().ok());
        let want = wanted
            .first()
            .filter(|_| wanted.len() == 1)
            .and_then(|own| own.parse::<i64>().ok());
        have.zip(want).is_some_and(|(have, want)| rule(&have, &want))
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
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
        let field = |name: &str| {
            affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}))
        };
        check(field("n1"), true);
        check(field("n2"), false);
    }
}
