//! Defaults of NetworkPolicies.

use machinery_schema::Tree;

/// Lines as the kind's `default_lines` take them.
pub(super) const LINES: &[&str] = &[
    "spec.egress[].ports[].protocol=\"TCP\"",
    "spec.ingress[].ports[].protocol=\"TCP\"",
];

/// Ingress always; egress where there are egress rules.
pub(super) fn set(object: &mut Tree) {
    let said = object
        .at(&["spec", "policyTypes"])
        .is_some_and(|types| !types.is_empty());
    let egress = object
        .at(&["spec", "egress"])
        .is_some_and(|rules| !rules.is_empty());
    if !said && object.get("spec").is_some() {
        object.push(&["spec", "policyTypes"], "Ingress");
        if egress {
            object.push(&["spec", "policyTypes"], "Egress");
        }
    }
}
