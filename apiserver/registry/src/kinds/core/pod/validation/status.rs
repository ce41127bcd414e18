//! Validation of a changed pod status.

use super::annotations;
use crate::shared::validation::{
    Errors, Path, dns_label, dns_subdomain, immutable, is_pair, legacy_ip, present, qualified,
};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Conditions whose types are not qualified names.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
/// Linux has as many users as fit into 32 bits.
const MAX_UID: i64 = u32::MAX as i64;

/// Every problem of a changed status.
pub(crate) fn validate(pod: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    annotations::changed(&mut errors, pod, old);
    annotations::validate(&mut errors, &Path::of("metadata").child("annotations"), pod);
    let (Some(status), Some(old_status)) = (pod.get("status"), old.get("status")) else {
        return errors.into_list();
    };
    let path = Path::of("status");
    conditions(&mut errors, &path.child("conditions"), status);
    nominated(
        &mut errors,
        &path.child("nominatedNodeName"),
        old,
        status,
        old_status,
    );
    observed_generation(&mut errors, &path, status);
    immutable(
        &mut errors,
        &path.child("qosClass"),
        status.get("qosClass"),
        old_status.get("qosClass"),
        "field is immutable",
    );
    if let Some(spec) = old.get("spec") {
        transitions(&mut errors, &path, status, old_status, spec);
    }
    resource_claims(&mut errors, &path.child("resourceClaimStatuses"), status, pod);
    if let Some(own) = present(status, "extendedResourceClaimStatus") {
        extended_claim(&mut errors, &path.child("extendedResourceClaimStatus"), own, pod);
    }
    pod_ips(&mut errors, &path.child("podIPs"), status, old_status);
    host_ips(&mut errors, &path.child("hostIPs"), status, old_status);
    for list in STATUSES {
        users(&mut errors, &path.child(list), status.list(list), pod);
    }
    errors.into_list()
}

const STATUSES: [&str; 3] = [
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

fn observed_generation(errors: &mut Errors, path: &Path<'_>, object: Ref<'_>) {
    let seen = object.get("observedGeneration").and_then(Ref::as_i64);
    if let Some(generation) = seen.filter(|generation| *generation < 0) {
        let at = path.child("observedGeneration");
        errors.invalid(&at, generation, "must be a non-negative integer");
    }
}

fn conditions(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>) {
    for (index, condition) in status.list("conditions").enumerate() {
        let at = path.index(index);
        observed_generation(errors, &at, condition);
        let kind = condition.str("type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            qualified(errors, &at.child("Type"), kind);
        }
    }
}

fn nominated(errors: &mut Errors, path: &Path<'_>, old: Ref<'_>, status: Ref<'_>, old_status: Ref<'_>) {
    let node = status.str("nominatedNodeName");
    if node.is_empty() || node == old_status.str("nominatedNodeName") {
        return;
    }
    dns_subdomain(errors, path, node);
    if !old.str_at(&["spec", "nodeName"]).is_empty() {
        let detail = "may not be set on pods that are already bound to a node";
        errors.forbidden(path, detail);
    }
}

/// A container that ended, and that nothing starts again, stays ended.
fn transitions(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>, old: Ref<'_>, spec: Ref<'_>) {
    for (list, statuses) in [
        ("containers", STATUSES[0]),
        ("initContainers", STATUSES[1]),
        ("", STATUSES[2]),
    ] {
        if !list.is_empty() && restarts_all(spec) {
            continue;
        }
        let at = path.child(statuses);
        let (now, containers) = (by_name(status, statuses), by_name(spec, list));
        for (index, before) in old.list(statuses).enumerate() {
            let Some(ended) = before.at(&["state", "terminated"]) else {
                continue;
            };
            let name = before.str("name");
            let runs = now
                .get(name)
                .is_some_and(|own| own.at(&["state", "terminated"]).is_none());
            let code = ended.get("exitCode").and_then(Ref::as_i64).unwrap_or(0);
            let container = containers.get(name);
            let allowed = container.is_some_and(|own| starts_again(*own, spec, code));
            if runs && !allowed {
                let at = at.index(index);
                errors.forbidden(
                    &at.child("state"),
                    "may not be transitioned to non-terminated state",
                );
            }
        }
    }
}

/// The items of a list by name; of several, the first.
fn by_name<'a>(of: Ref<'a>, list: &str) -> HashMap<&'a str, Ref<'a>> {
    let mut all = HashMap::new();
    for own in of.list(list) {
        all.entry(own.str("name")).or_insert(own);
    }
    all
}

/// Some container may start all of them again.
fn restarts_all(spec: Ref<'_>) -> bool {
    let containers = spec.list("initContainers").chain(spec.list("containers"));
    let mut rules = containers.flat_map(|container| container.list("restartPolicyRules"));
    rules.any(|rule| rule.str("action") == "RestartAllContainers")
}

fn starts_again(container: Ref<'_>, spec: Ref<'_>, code: i64) -> bool {
    let own = container.str("restartPolicy");
    if !own.is_empty() && rule_restarts(container, code) {
        return true;
    }
    let policy = if own.is_empty() {
        spec.str("restartPolicy")
    } else {
        own
    };
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

/// The first rule that is about this exit code starts it again.
fn rule_restarts(container: Ref<'_>, code: i64) -> bool {
    let matches = |rule: &Ref<'_>| {
        let Some(codes) = rule.get("exitCodes") else {
            return false;
        };
        let listed = codes.list("values").any(|value| value.as_i64() == Some(code));
        match codes.str("operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    let rule = container.list("restartPolicyRules").find(matches);
    rule.is_some_and(|rule| matches!(rule.str("action"), "Restart" | "RestartAllContainers"))
}

/// Validates the names of claims generated for a pod.
fn resource_claims(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>, pod: Ref<'_>) {
    let mut seen = BTreeSet::new();
    let claims = pod.get("spec").map(|spec| by_name(spec, "resourceClaims"));
    let claims = claims.unwrap_or_default();
    for (index, own) in status.list("resourceClaimStatuses").enumerate() {
        let (at, name) = (path.index(index), own.str("name"));
        if !claims.contains_key(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&at.child("name"), name, detail);
        }
        if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        seen.insert(name);
        if let Some(claim) = own.get("resourceClaimName").and_then(Ref::as_str) {
            dns_subdomain(errors, &at.child("resourceClaimName"), claim);
        }
    }
}

/// Validates the claim that was made of a pod's extended resources.
fn extended_claim(errors: &mut Errors, path: &Path<'_>, own: Ref<'_>, pod: Ref<'_>) {
    let list = path.child("requestMappings");
    if own.list("requestMappings").len() == 0 {
        errors.required(&list, "at least one request mapping is required");
    }
    let containers: HashMap<&str, Ref<'_>> = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|name| pod.get("spec").into_iter().flat_map(move |spec| spec.list(name)))
        .map(|container| (container.str("name"), container))
        .collect();
    let mut seen = BTreeSet::new();
    for (index, mapping) in own.list("requestMappings").enumerate() {
        let at = list.index(index);
        let parts = ["containerName", "resourceName", "requestName"].map(|name| mapping.str(name));
        let [container, resource, request] = parts;
        match containers.get(container) {
            None => {
                let detail =
                    "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&at.child("containerName"), container, detail);
            }
            Some(found) if found.at(&["resources", "requests", resource]).is_none() => {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.invalid(&at.child("resourceName"), resource, detail);
            }
            Some(_) => {}
        }
        dns_label(errors, &path.child("requestName"), request);
        if !seen.insert(parts) {
            for (name, value) in ["containerName", "resourceName", "requestName"]
                .into_iter()
                .zip(parts)
            {
                errors.duplicate(&at.child(name), value);
            }
        }
    }
    match own.str("resourceClaimName") {
        "" => errors.required(&path.child("resourceClaimName"), ""),
        name => dns_subdomain(errors, &path.child("resourceClaimName"), name),
    }
}

fn pod_ips(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>, old: Ref<'_>) {
    let listed = addresses(errors, path, status, old, "podIPs");
    let (ip, first) = (status.str("podIP"), listed.first().copied());
    if ip.is_empty() != first.is_none() {
        let shown = internal_ips(&listed);
        errors.invalid(
            path,
            shown,
            "podIP and podIPs must either both be set or both be unset",
        );
    } else if let Some(first) = first.filter(|first| *first != ip) {
        errors.invalid(&path.index(0).child("ip"), first, "must be equal to `podIP`");
    }
}

fn host_ips(errors: &mut Errors, path: &Path<'_>, status: Ref<'_>, old: Ref<'_>) {
    let first = status.list("hostIPs").next().map(|own| own.str("ip"));
    if let Some(first) = first.filter(|first| *first != status.str("hostIP")) {
        errors.invalid(&path.index(0).child("ip"), first, "must be equal to `hostIP`");
    }
    addresses(errors, path, status, old, "hostIPs");
}

/// The addresses of a list; those that were there may be as they were.
fn addresses<'a>(
    errors: &mut Errors,
    path: &Path<'_>,
    status: Ref<'a>,
    old: Ref<'_>,
    list: &str,
) -> Vec<&'a str> {
    let listed: Vec<&str> = status.list(list).map(|own| own.str("ip")).collect();
    let before: BTreeSet<&str> = old.list(list).map(|own| own.str("ip")).collect();
    for (index, ip) in listed.iter().enumerate() {
        if !before.contains(ip) {
            legacy_ip(errors, &path.index(index), ip);
        }
    }
    if listed.len() < 2 {
        return listed;
    }
    let unreadable = |text: &&str| text.parse::<IpAddr>().is_err();
    if let Some(at) = listed.iter().position(unreadable) {
        let detail = format!(
            "failed to check for dual stack with error:invalid IP[{at}]: {}",
            listed[at]
        );
        errors.push(FieldError::internal(&path.to_path(), detail));
    }
    if !is_pair(&listed) {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(path, internal_ips(&listed), detail);
    }
    listed
}

/// Addresses as upstream's internal type shows them.
fn internal_ips(listed: &[&str]) -> machinery_meta::field::Shown {
    let each: Vec<String> = listed.iter().map(|ip| format!(r#"{{"IP":{ip:?}}}"#)).collect();
    let text = if each.is_empty() {
        "null".into()
    } else {
        format!("[{}]", each.join(","))
    };
    machinery_meta::field::Shown(text)
}

fn users<'a>(errors: &mut Errors, path: &Path<'_>, statuses: impl Iterator<Item = Ref<'a>>, pod: Ref<'_>) {
    let windows = pod.str_at(&["spec", "os", "name"]) == "windows";
    for (index, status) in statuses.enumerate() {
        let Some(user) = status.get("user").and_then(|user| present(user, "linux")) else {
            continue;
        };
        let at = path.index(index);
        let at = at.child("user.linux");
        if windows {
            errors.forbidden(&at, "cannot be set for a windows pod");
            continue;
        }
        let number = |name| user.get(name).and_then(Ref::as_i64).unwrap_or(0);
        if !(0..=MAX_UID).contains(&number("uid")) {
            errors.invalid(
                &at.child("uid"),
                number("uid"),
                syntax::inclusive_range(0, MAX_UID),
            );
        }
        for problem in syntax::user_id(number("gid")) {
            errors.invalid(&at.child("gid"), number("gid"), problem);
        }
        let groups = at.child("supplementalGroups");
        for (index, group) in user
            .list("supplementalGroups")
            .filter_map(Ref::as_i64)
            .enumerate()
        {
            for problem in syntax::user_id(group) {
                errors.invalid(&groups.index(index), group, problem);
            }
        }
    }
}
