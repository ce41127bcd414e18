//! Validation of NetworkPolicies.

use crate::shared::validation::{
    Errors, Path, is_strict_part, label_selector, legacy_cidr, lenient_range, present,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const TYPES: [&str; 2] = ["Ingress", "Egress"];
/// Rules of a direction, and its peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// Every problem of a new policy.
pub(super) fn validate(policy: Ref<'_>) -> Vec<FieldError> {
    validate_spec(policy, &HashSet::new())
}

/// Every problem of a changed policy; what was stored before there were rules may stay as it is.
pub(super) fn validate_update(policy: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    if policy.get("spec") == old.get("spec") {
        return Vec::new();
    }
    validate_spec(policy, &ranges(old))
}

/// The ranges of a policy.
fn ranges(policy: Ref<'_>) -> HashSet<&str> {
    let mut known = HashSet::new();
    let Some(spec) = policy.get("spec") else {
        return known;
    };
    for (direction, peers) in DIRECTIONS {
        for peer in spec.list(direction).flat_map(|rule| rule.list(peers)) {
            let Some(block) = peer.get("ipBlock") else {
                continue;
            };
            known.insert(block.str("cidr"));
            known.extend(block.list("except").filter_map(Ref::as_str));
        }
    }
    known
}

fn validate_spec(policy: Ref<'_>, known: &HashSet<&str>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = policy.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    if let Some(selector) = present(spec, "podSelector") {
        label_selector(&mut errors, &path.child("podSelector"), selector);
    }
    for (direction, peers) in DIRECTIONS {
        let rules = path.child(direction);
        for (index, rule) in spec.list(direction).enumerate() {
            let at = rules.index(index);
            let ports = at.child("ports");
            for (index, own) in rule.list("ports").enumerate() {
                port(&mut errors, &ports.index(index), own);
            }
            let list = at.child(peers);
            for (index, own) in rule.list(peers).enumerate() {
                peer(&mut errors, &list.index(index), own, known);
            }
        }
    }
    policy_types(&mut errors, &path.child("policyTypes"), spec);
    errors.into_list()
}

fn policy_types(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.list("policyTypes").len() > TYPES.len() {
        let shown = spec.get("policyTypes").map_or_else(String::new, Ref::to_json);
        return errors.invalid(path, Shown(shown), "may not specify more than two policyTypes");
    }
    for (index, own) in spec.list("policyTypes").enumerate() {
        let own = own.as_str().unwrap_or_default();
        if !TYPES.contains(&own) {
            errors.not_supported(&path.index(index), own, &TYPES);
        }
    }
}

fn port(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>) {
    let protocol = present(own, "protocol").and_then(Ref::as_str);
    if let Some(protocol) = protocol.filter(|protocol| !PROTOCOLS.contains(protocol)) {
        errors.not_supported(&path.child("protocol"), protocol, &PROTOCOLS);
    }
    let (at, end_at) = (path.child("port"), path.child("endPort"));
    let end = present(own, "endPort").and_then(Ref::as_i64);
    let port = present(own, "port");
    match (port.and_then(Ref::as_i64), port.and_then(Ref::as_str), end) {
        (Some(number), _, end) => {
            number_problems(errors, &at, number);
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&end_at, end, "must be greater than or equal to `port`");
                }
                number_problems(errors, &end_at, end);
            }
        }
        (None, Some(name), end) => {
            if let Some(end) = end {
                errors.invalid(&end_at, end, "may not be specified when `port` is non-numeric");
            }
            errors.all_invalid(&at, name, syntax::port_name(name));
        }
        (None, None, Some(end)) => {
            errors.invalid(&end_at, end, "may not be specified when `port` is not specified");
        }
        (None, None, None) => {}
    }
}

fn number_problems(errors: &mut Errors, path: &Path<'_>, number: i64) {
    for problem in syntax::port_number(number) {
        errors.invalid(path, number, problem);
    }
}

fn peer(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, known: &HashSet<&str>) {
    let mut count = 0;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = present(own, name) {
            count += 1;
            label_selector(errors, &path.child(name), selector);
        }
    }
    let block = present(own, "ipBlock");
    if let Some(block) = block {
        ip_block(errors, &path.child("ipBlock"), block, known);
    }
    match (count, block) {
        (0, None) => errors.required(path, "must specify a peer"),
        (0, Some(_)) | (_, None) => {}
        (_, Some(_)) => errors.forbidden(path, "may not specify both ipBlock and another peer"),
    }
    // Upstream declares this one, and reports it later.
    if block.is_some_and(|block| block.str("cidr").is_empty()) {
        errors.required(&path.child("ipBlock").child("cidr"), "");
    }
}

fn ip_block(errors: &mut Errors, path: &Path<'_>, block: Ref<'_>, known: &HashSet<&str>) {
    let cidr = block.str("cidr");
    if cidr.is_empty() {
        return;
    }
    let check = |errors: &mut Errors, path: &Path<'_>, text: &str| {
        if !known.contains(text) {
            legacy_cidr(errors, path, text);
        }
    };
    check(errors, &path.child("cidr"), cidr);
    if lenient_range(cidr).is_none() {
        return;
    }
    let list = path.child("except");
    for (index, own) in block.list("except").enumerate() {
        let (at, own) = (list.index(index), own.as_str().unwrap_or_default());
        check(errors, &at, own);
        if is_strict_part(own, cidr) == Some(false) {
            errors.invalid(&at, own, "must be a strict subset of `cidr`");
        }
    }
}
