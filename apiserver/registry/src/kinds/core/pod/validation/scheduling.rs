//! Validation of scheduling: affinity, tolerations, topology spread.

use crate::shared::validation::{Errors, Path, label_selector, one_of};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::{BTreeSet, HashMap};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Tolerations of taints.
pub fn tolerations(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for (index, toleration) in spec.list("tolerations").enumerate() {
        let at = path.index(index);
        let (key, operator, effect) = (
            toleration.str("key"),
            toleration.str("operator"),
            toleration.str("effect"),
        );
        if !key.is_empty() {
            errors.all_invalid(&at.child("key"), key, syntax::qualified_name(key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&at.child("operator"), operator, detail);
        }
        if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&at.child("effect"), effect, detail);
        }
        toleration_operator(errors, &at.child("operator"), toleration);
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.not_supported(&at.child("effect"), effect, &EFFECTS);
        }
    }
}

fn toleration_operator(errors: &mut Errors, path: &Path<'_>, toleration: Ref<'_>) {
    let value = toleration.str("value");
    match toleration.str("operator") {
        "" | "Equal" => {
            let problems = syntax::label_value(value);
            if !problems.is_empty() {
                errors.invalid(path, value, problems.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            errors.invalid(path, value, "value must be empty when `operator` is 'Exists'");
        }
        "Exists" => {}
        // Upstream knows the comparisons and has them switched off.
        other @ ("Lt" | "Gt") => errors.not_supported(path, other, &["Equal", "Exists", "Lt", "Gt"]),
        other => errors.not_supported(path, other, &["Equal", "Exists"]),
    }
}

/// Node affinity, pod affinity and anti-affinity.
pub fn affinity(errors: &mut Errors, path: &Path<'_>, affinity: Option<Ref<'_>>) {
    let Some(affinity) = affinity else { return };
    if let Some(node) = affinity.get("nodeAffinity") {
        node_affinity(errors, &path.child("nodeAffinity"), node);
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        if let Some(pod) = affinity.get(name) {
            pod_affinity(errors, &path.child(name), pod);
        }
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn node_affinity(errors: &mut Errors, path: &Path<'_>, affinity: Ref<'_>) {
    if let Some(required) = affinity.get(REQUIRED) {
        node_selector(errors, &path.child(REQUIRED), required);
    }
    let preferred = path.child(PREFERRED);
    for (index, term) in affinity.list(PREFERRED).enumerate() {
        let at = preferred.index(index);
        weight(errors, &at, term);
        if let Some(preference) = term.get("preference") {
            node_selector_term(errors, &at.child("preference"), preference);
        }
    }
}

/// A `NodeSelector`, here and in volumes.
pub fn node_selector(errors: &mut Errors, path: &Path<'_>, selector: Ref<'_>) {
    let terms = path.child("nodeSelectorTerms");
    if selector.list("nodeSelectorTerms").len() == 0 {
        errors.required(&terms, "must have at least one node selector term");
        return;
    }
    for (index, term) in selector.list("nodeSelectorTerms").enumerate() {
        node_selector_term(errors, &terms.index(index), term);
    }
}

fn node_selector_term(errors: &mut Errors, path: &Path<'_>, term: Ref<'_>) {
    let expressions = path.child("matchExpressions");
    for (index, expression) in term.list("matchExpressions").enumerate() {
        node_requirement(errors, &expressions.index(index), expression);
    }
    let fields = path.child("matchFields");
    for (index, field) in term.list("matchFields").enumerate() {
        node_field(errors, &fields.index(index), field);
    }
}

fn node_requirement(errors: &mut Errors, path: &Path<'_>, requirement: Ref<'_>) {
    let values = requirement.list("values").len();
    let at = path.child("values");
    match requirement.str("operator") {
        "In" | "NotIn" if values == 0 => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if values > 0 => {
            errors.forbidden(
                &at,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "Gt" | "Lt" if values != 1 => {
            errors.required(
                &at,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    let key = requirement.str("key");
    errors.all_invalid(&path.child("key"), key, syntax::qualified_name(key));
    for (index, value) in requirement.list("values").enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.all_invalid(&at.index(index), value, syntax::label_value(value));
    }
}

fn node_field(errors: &mut Errors, path: &Path<'_>, requirement: Ref<'_>) {
    match requirement.str("operator") {
        "In" | "NotIn" => {
            if requirement.list("values").len() != 1 {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(&path.child("values"), detail);
            }
        }
        other => errors.invalid(&path.child("operator"), other, "not a valid selector operator"),
    }
    match requirement.str("key") {
        "metadata.name" => {
            let at = path.child("values");
            for (index, value) in requirement.list("values").enumerate() {
                let value = value.as_str().unwrap_or_default();
                errors.all_invalid(&at.index(index), value, syntax::dns1123_subdomain(value));
            }
        }
        other => errors.invalid(&path.child("key"), other, "not a valid field selector key"),
    }
}

fn weight(errors: &mut Errors, path: &Path<'_>, term: Ref<'_>) {
    let weight = term.get("weight").and_then(Ref::as_i64).unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn pod_affinity(errors: &mut Errors, path: &Path<'_>, affinity: Ref<'_>) {
    let required = path.child(REQUIRED);
    for (index, term) in affinity.list(REQUIRED).enumerate() {
        pod_affinity_term(errors, &required.index(index), term);
    }
    let preferred = path.child(PREFERRED);
    for (index, weighted) in affinity.list(PREFERRED).enumerate() {
        let at = preferred.index(index);
        weight(errors, &at, weighted);
        if let Some(term) = weighted.get("podAffinityTerm") {
            pod_affinity_term(errors, &at.child("podAffinityTerm"), term);
        }
    }
}

fn pod_affinity_term(errors: &mut Errors, path: &Path<'_>, term: Ref<'_>) {
    for name in ["labelSelector", "namespaceSelector"] {
        if let Some(selector) = term.get(name) {
            label_selector(errors, &path.child(name), selector);
        }
    }
    for namespace in term.list("namespaces").filter_map(Ref::as_str) {
        errors.all_invalid(
            &path.child("namespace"),
            namespace,
            syntax::dns1123_label(namespace),
        );
    }
    label_keys(errors, path, term);
    let topology = term.str("topologyKey");
    if topology.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    errors.all_invalid(
        &path.child("topologyKey"),
        topology,
        syntax::qualified_name(topology),
    );
}

/// `matchLabelKeys` and `mismatchLabelKeys` add to a selector that must be there.
fn label_keys(errors: &mut Errors, path: &Path<'_>, term: Ref<'_>) {
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let at = path.child(name);
        if term.list(name).len() > 0 && term.get("labelSelector").is_none() {
            errors.forbidden(&at, "must not be specified when labelSelector is not set");
        }
        for (index, key) in term.list(name).enumerate() {
            let key = key.as_str().unwrap_or_default();
            errors.all_invalid(&at.index(index), key, syntax::qualified_name(key));
        }
    }
    let at = path.child("matchLabelKeys");
    let mismatched: BTreeSet<&str> = term.list("mismatchLabelKeys").filter_map(Ref::as_str).collect();
    for (index, key) in term.list("matchLabelKeys").filter_map(Ref::as_str).enumerate() {
        if mismatched.contains(key) {
            errors.invalid(
                &at.index(index),
                key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            );
        }
    }
}

/// Validates the topology spread constraints.
pub fn topology_spread(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    // Upstream reports the first of two that are alike.
    let mut left: HashMap<(&str, &str), usize> = HashMap::new();
    for constraint in spec.list("topologySpreadConstraints") {
        *left.entry(spread_key(constraint)).or_default() += 1;
    }
    for (index, constraint) in spec.list("topologySpreadConstraints").enumerate() {
        let at = path.index(index);
        let number = |name| constraint.get(name).and_then(Ref::as_i64);
        if let Some(skew) = number("maxSkew").filter(|skew| *skew <= 0) {
            errors.invalid(&at.child("maxSkew"), skew, "must be greater than zero");
        }
        let (key, when) = spread_key(constraint);
        if key.is_empty() {
            errors.required(&at.child("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&when) {
            errors.not_supported(&at.child("whenUnsatisfiable"), when, &actions);
        }
        let others = left.entry((key, when)).or_default();
        *others = others.saturating_sub(1);
        if *others > 0 {
            errors.duplicate(
                &at.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {when}}}"),
            );
        }
        if let Some(domains) = number("minDomains") {
            min_domains(errors, &at.child("minDomains"), domains, when);
        }
        one_of(
            errors,
            &at,
            constraint,
            "nodeAffinityPolicy",
            &["Honor", "Ignore"],
            None,
        );
        one_of(
            errors,
            &at,
            constraint,
            "nodeTaintsPolicy",
            &["Honor", "Ignore"],
            None,
        );
        label_keys(errors, &at, constraint);
        if let Some(selector) = constraint.get("labelSelector") {
            label_selector(errors, &at.child("labelSelector"), selector);
        }
    }
}

/// Members of which no two constraints have the same.
fn spread_key(constraint: Ref<'_>) -> (&str, &str) {
    (constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"))
}

fn min_domains(errors: &mut Errors, path: &Path<'_>, domains: i64, when: &str) {
    if domains <= 0 {
        errors.invalid(path, domains, "must be greater than zero");
    }
    if when != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
        errors.invalid(path, domains, detail);
    }
}

/// Taints of a node.
pub fn taints(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in spec.list("taints").enumerate() {
        let at = path.index(index);
        let (key, value, effect) = (taint.str("key"), taint.str("value"), taint.str("effect"));
        errors.all_invalid(&at.child("key"), key, syntax::qualified_name(key));
        let problems = syntax::label_value(value);
        if !problems.is_empty() {
            errors.invalid(&at.child("value"), value, problems.join(";"));
        }
        one_of(errors, &at, taint, "effect", &EFFECTS, Some(""));
        if seen.contains(&(key, effect)) {
            let added = taint.get("timeAdded").map_or_else(|| "null".into(), Ref::to_json);
            let shown = Shown(format!(
                r#"{{"Key":{key:?},"Value":{value:?},"Effect":{effect:?},"TimeAdded":{added}}}"#
            ));
            errors.push(machinery_meta::FieldError {
                detail: "taints must be unique by key and effect pair".into(),
                ..machinery_meta::FieldError::duplicate(&at.to_path(), shown)
            });
        }
        seen.insert((key, effect));
    }
}
