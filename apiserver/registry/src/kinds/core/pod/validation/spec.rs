//! The spec as a whole.

use super::{containers, environment, os, resources, scheduling, security, volumes};
use crate::shared::validation::{Errors, Path, dns_label, dns_subdomain, labels, one_of, present, range};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::BTreeSet;
use std::net::IpAddr;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const SEARCH_CHARS_MAX: usize = 253;
const SEARCH_LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
const SEARCH_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' \
                           or '.', and must start and end with an alphanumeric character";
const HOSTNAME_BYTES_MAX: usize = 64;
const BAD_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// A pod's spec, or a template's.
pub fn validate(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let known = volumes::validate(errors, &path.child("volumes"), spec);
    resource_claims(errors, &path.child("resourceClaims"), spec);
    containers::validate_all(errors, path, spec, &known);
    if let Some(resources) = present(spec, "resources") {
        resources::validate_pod(errors, &path.child("resources"), resources, spec, &known);
    }
    host_network_ports(errors, path, spec);
    one_of(
        errors,
        path,
        spec,
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        Some(""),
    );
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(errors, path, spec, "dnsPolicy", &dns, Some(""));
    labels(errors, &path.child("nodeSelector"), spec.get("nodeSelector"));
    security::validate_pod(errors, path, spec);
    scheduling::affinity(errors, &path.child("affinity"), spec.get("affinity"));
    dns_config(errors, &path.child("dnsConfig"), spec);
    readiness_gates(errors, &path.child("readinessGates"), spec);
    scheduling_gates(errors, &path.child("schedulingGates"), spec);
    scheduling::topology_spread(errors, &path.child("topologySpreadConstraints"), spec);
    security::host_users(errors, path, spec);
    hostname_override(errors, path, spec);
    names(errors, path, spec);
    range(
        errors,
        path,
        spec,
        "activeDeadlineSeconds",
        1,
        i64::from(i32::MAX),
    );
    for name in ["hostname", "subdomain"] {
        if !spec.str(name).is_empty() {
            dns_label(errors, &path.child(name), spec.str(name));
        }
    }
    scheduling::tolerations(errors, &path.child("tolerations"), spec);
    host_aliases(errors, &path.child("hostAliases"), spec);
    if !spec.str("priorityClassName").is_empty() {
        let at = path.child("priorityClassName");
        dns_subdomain(errors, &at, spec.str("priorityClassName"));
    }
    if let Some(name) = spec.get("runtimeClassName").and_then(Ref::as_str) {
        dns_subdomain(errors, &path.child("runtimeClassName"), name);
    }
    one_of(
        errors,
        path,
        spec,
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
        None,
    );
    if let Some(overhead) = spec.get("overhead") {
        resources::overhead(errors, &path.child("overhead"), overhead);
    }
    os::validate(errors, path, spec);
    environment::file_volumes(errors, path, spec);
}

/// Devices that a pod is to have: by the name of a claim, or of a template for claims.
fn resource_claims(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut seen = BTreeSet::new();
    for (index, claim) in spec.list("resourceClaims").enumerate() {
        let (at, name) = (path.index(index), claim.str("name"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        } else {
            dns_label(errors, &at.child("name"), name);
            seen.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let given = sources.map(|source| (source, claim.get(source).and_then(Ref::as_str)));
        let shown = Shown(claim.to_json());
        match given.iter().filter(|(_, name)| name.is_some()).count() {
            0 => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                errors.invalid(&at, shown, detail);
            }
            1 => {}
            _ => {
                let detail =
                    "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                errors.invalid(&at, shown, detail);
            }
        }
        for (source, name) in given {
            if let Some(name) = name {
                dns_subdomain(errors, &at.child(source), name);
            }
        }
    }
}

/// Account, node and the like, which are names of other objects.
fn names(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for name in ["serviceAccountName", "nodeName"] {
        if !spec.str(name).is_empty() {
            dns_subdomain(errors, &path.child(name), spec.str(name));
        }
    }
}

/// Checks that in the host's network a container's port and its host port are the same.
fn host_network_ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.get("hostNetwork").and_then(Ref::as_bool) != Some(true) {
        return;
    }
    let list = path.child("containers");
    for (index, container) in spec.list("containers").enumerate() {
        let container_path = list.index(index);
        let ports = container_path.child("ports");
        for (index, port) in container.list("ports").enumerate() {
            let number = |name| port.get(name).and_then(Ref::as_i64).unwrap_or_default();
            // Nothing is filled in when a pod is made of a template.
            if number("hostPort") != 0 && number("hostPort") != number("containerPort") {
                let at = ports.index(index);
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&at.child("hostPort"), number("hostPort"), detail);
            }
        }
    }
}

fn dns_config(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let config = spec.get("dnsConfig");
    let none = spec.str("dnsPolicy") == "None";
    let Some(config) = config else {
        if none {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        return;
    };
    let servers = config.list("nameservers");
    let servers_path = path.child("nameservers");
    if none && servers.len() == 0 {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        errors.required(&servers_path, detail);
    }
    if servers.len() > MAX_NAMESERVERS {
        let shown = config.get("nameservers").map(Ref::to_json).unwrap_or_default();
        let detail = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.invalid(&servers_path, Shown(shown), detail);
    }
    for (index, server) in servers.enumerate() {
        let text = server.as_str().unwrap_or_default();
        if text.parse::<IpAddr>().is_err() {
            errors.invalid(&servers_path.index(index), text, BAD_ADDRESS);
        }
    }
    searches(errors, &path.child("searches"), config);
    let options = path.child("options");
    for (index, option) in config.list("options").enumerate() {
        if option.str("name").is_empty() {
            errors.required(&options.index(index), "must not be empty");
        }
    }
}

fn searches(errors: &mut Errors, path: &Path<'_>, config: Ref<'_>) {
    let searches: Vec<&str> = config.list("searches").filter_map(Ref::as_str).collect();
    let shown = || Shown(format!("{searches:?}"));
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(path, shown(), detail);
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let detail = format!(
            "must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        );
        errors.invalid(path, shown(), detail);
    }
    for (index, search) in searches.iter().enumerate() {
        let name = search.strip_suffix('.').unwrap_or(search);
        if *search != "." {
            errors.all_invalid(&path.index(index), search, search_path(name));
        }
    }
}

/// A subdomain whose labels may hold underscores and begin with one, as names of services in DNS do.
fn search_path(name: &str) -> Vec<String> {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label).as_bytes();
        let ends = [label.first(), label.last()];
        ends.iter().all(|end| end.is_some_and(alphanumeric))
            && label
                .iter()
                .all(|byte| alphanumeric(byte) || b"-_".contains(byte))
    };
    let mut problems = Vec::new();
    if name.len() > SEARCH_CHARS_MAX {
        problems.push(format!("must be no more than {SEARCH_CHARS_MAX} characters"));
    }
    if !name.split('.').all(is_label) {
        let expression = format!("{SEARCH_LABEL}(\\.{SEARCH_LABEL})*");
        problems.push(syntax::regex_rule(SEARCH_RULE, &expression, &["example.com"]));
    }
    problems
}

/// The host name that a pod has instead of its own (KEP-4762).
fn hostname_override(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let Some(name) = spec.get("hostnameOverride").and_then(Ref::as_str) else {
        return;
    };
    let at = path.child("hostnameOverride");
    for other in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.get(other).and_then(Ref::as_bool) == Some(true) {
            errors.forbidden(&at, &format!("may not be specified when {other} is true"));
        }
    }
    if name.len() > HOSTNAME_BYTES_MAX {
        errors.too_long(&at, HOSTNAME_BYTES_MAX);
    }
    dns_subdomain(errors, &at, name);
}

fn readiness_gates(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for (index, gate) in spec.list("readinessGates").enumerate() {
        let at = path.index(index);
        let condition = gate.str("conditionType");
        errors.all_invalid(
            &at.child("conditionType"),
            condition,
            syntax::qualified_name(condition),
        );
    }
}

fn scheduling_gates(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut seen = BTreeSet::new();
    for (index, gate) in spec.list("schedulingGates").enumerate() {
        let at = path.index(index);
        let name = gate.str("name");
        errors.all_invalid(&at, name, syntax::qualified_name(name));
        if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        seen.insert(name);
    }
}

fn host_aliases(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for (index, alias) in spec.list("hostAliases").enumerate() {
        let at = path.index(index);
        if alias.str("ip").parse::<IpAddr>().is_err() {
            errors.invalid(&at.child("ip"), alias.str("ip"), BAD_ADDRESS);
        }
        let hostnames = at.child("hostnames");
        for (index, name) in alias.list("hostnames").filter_map(Ref::as_str).enumerate() {
            dns_subdomain(errors, &hostnames.index(index), name);
        }
    }
}
