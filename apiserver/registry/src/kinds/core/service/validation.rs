//! Validation of Services (upstream's `ValidateService`).

use super::cluster_ips;
use crate::kinds::core::pod::validation::ports::{PROTOCOLS, port_number, port_or_name};
use crate::shared::validation::{
    Errors, Path, dns_label, dns_subdomain, each_once, labels, legacy_cidr, legacy_ip, lenient_ip,
    load_balancer, one_of, present, qualified,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::HashSet;
use std::net::IpAddr;

/// Annotations of services: two spellings of one, and one from before there was a field.
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// A day, the longest a client may stick to an endpoint.
const MAX_AFFINITY_SECONDS: i64 = 86_400;

/// Every problem of a Service.
pub fn validate(service: Ref<'_>) -> Vec<FieldError> {
    whole(service, None)
}

/// Every problem of a changed Service.
pub fn validate_update(service: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if let (Some(spec), Some(old_spec)) = (service.get("spec"), old.get("spec")) {
        let path = Path::of("spec");
        cluster_ips::changed(&mut errors, &path, spec, old_spec);
        cluster_ips::load_balancer_class(&mut errors, &path, spec, old_spec);
        let checked = |spec: Ref<'_>| {
            let local = spec.str("externalTrafficPolicy") == "Local";
            let port = spec.get("healthCheckNodePort").and_then(Ref::as_i64);
            port.filter(|_| local && spec.str("type") == "LoadBalancer")
        };
        if checked(spec)
            .zip(checked(old_spec))
            .is_some_and(|(new, was)| new != was)
        {
            errors.forbidden(&path.child("healthCheckNodePort"), "field is immutable");
        }
    }
    each_once(errors.into_list(), whole(service, Some(old)))
}

/// Every problem of a changed status.
pub fn validate_status_update(service: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("status.loadBalancer.ingress");
    let status = service.at(&["status", "loadBalancer"]);
    let listens = status.is_some_and(|status| status.list("ingress").len() > 0);
    if listens && super::service_type(service) != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.forbidden(&path, detail);
    } else {
        load_balancer(&mut errors, service, old, true);
    }
    errors.into_list()
}

fn whole(service: Ref<'_>, old: Option<Ref<'_>>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = service.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let headless = cluster_ips::is_headless(spec);
    topology(&mut errors, service);
    if spec.list("ports").len() == 0 && !headless && spec.str("type") != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    by_type(&mut errors, &path, spec, headless);
    ports(&mut errors, &path.child("ports"), spec);
    labels(&mut errors, &path.child("selector"), spec.get("selector"));
    affinity(&mut errors, &path, spec);
    let old_spec = old.and_then(|old| old.get("spec"));
    cluster_ips::validate(&mut errors, &path, spec, old_spec);
    addresses(&mut errors, &path.child("externalIPs"), spec, old_spec);
    one_of(&mut errors, &path, spec, "type", &TYPES, Some(""));
    node_ports(&mut errors, &path.child("ports"), spec);
    duplicate_ports(&mut errors, &path.child("ports"), spec);
    source_ranges(&mut errors, service, spec, old);
    for_load_balancers(&mut errors, &path, spec);
    traffic_policies(&mut errors, &path, spec);
    errors.into_list()
}

/// Two spellings of one annotation say the same.
fn topology(errors: &mut Errors, service: Ref<'_>) {
    let annotation = |key| {
        service
            .at(&["metadata", "annotations", key])
            .and_then(Ref::as_str)
    };
    let (mode, hints) = (annotation(TOPOLOGY_MODE), annotation(TOPOLOGY_HINTS));
    if let (Some(mode), Some(hints)) = (mode, hints)
        && mode != hints
    {
        let path = Path::of("metadata.annotations");
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.invalid(&path.key(TOPOLOGY_MODE), mode, detail);
    }
}

fn for_load_balancers(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let class = present(spec, "loadBalancerClass").and_then(Ref::as_str);
    if spec.str("type") == "LoadBalancer" {
        if let Some(class) = class {
            qualified(errors, &path.child("loadBalancerClass"), class);
        }
        return;
    }
    let detail = "may only be used when `type` is 'LoadBalancer'";
    if present(spec, "allocateLoadBalancerNodePorts").is_some() {
        errors.forbidden(&path.child("allocateLoadBalancerNodePorts"), detail);
    }
    if class.is_some() {
        errors.forbidden(&path.child("loadBalancerClass"), detail);
    }
}

fn by_type(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, headless: bool) {
    match spec.str("type") {
        "LoadBalancer" if headless => {
            let detail = "may not be set to 'None' for LoadBalancer services";
            errors.invalid(&path.child("clusterIPs").index(0), "None", detail);
        }
        "NodePort" if headless => {
            let detail = "may not be set to 'None' for NodePort services";
            errors.invalid(&path.child("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if present(spec, name).is_some_and(|value| value.as_str().is_some() || !value.is_empty()) {
                    errors.forbidden(&path.child(name), "may not be set for ExternalName services");
                }
            }
            external_name(errors, &path.child("externalName"), spec.str("externalName"));
        }
        _ => {}
    }
}

fn external_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.required(path, "");
    } else {
        dns_subdomain(errors, path, name);
    }
}

/// Ports of one service: each node has rules, and each endpoint names, for every one (decision 0095). Upstream has no
/// bound.
const MAX_PORTS: usize = 1_000;

fn ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let list = spec.list("ports");
    if list.len() > MAX_PORTS {
        errors.too_many(path, list.len(), MAX_PORTS);
        return;
    }
    let must_be_named = list.len() > 1;
    let mut names = HashSet::new();
    for (index, port) in list.enumerate() {
        let at = path.index(index);
        let name = port.str("name");
        if name.is_empty() {
            if must_be_named {
                errors.required(&at.child("name"), "");
            }
        } else {
            dns_label(errors, &at.child("name"), name);
            if !names.insert(name) {
                errors.duplicate(&at.child("name"), name);
            }
        }
        let number = port.get("port").and_then(Ref::as_i64).unwrap_or_default();
        port_number(errors, &at.child("port"), number);
        one_of(errors, &at, port, "protocol", &PROTOCOLS, Some(""));
        port_or_name(errors, &at.child("targetPort"), port.get("targetPort"));
        let protocol = port.str("appProtocol");
        if port.get("appProtocol").is_some() {
            errors.all_invalid(
                &at.child("appProtocol"),
                protocol,
                syntax::qualified_name(protocol),
            );
        }
    }
}

fn affinity(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    one_of(
        errors,
        path,
        spec,
        "sessionAffinity",
        &["ClientIP", "None"],
        Some(""),
    );
    let at = path.child("sessionAffinityConfig");
    match (spec.str("sessionAffinity"), spec.get("sessionAffinityConfig")) {
        ("ClientIP", None) => errors.required(&at, "when session affinity type is ClientIP"),
        ("ClientIP", Some(config)) => {
            let seconds = config.at(&["clientIP", "timeoutSeconds"]).and_then(Ref::as_i64);
            let client = at.child("clientIP");
            match seconds {
                None => errors.required(&client.child("timeoutSeconds"), ""),
                Some(seconds) if !(1..=MAX_AFFINITY_SECONDS).contains(&seconds) => {
                    let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                    errors.invalid(&client.child("timeoutSeconds"), seconds, detail);
                }
                Some(_) => {}
            }
        }
        ("None", Some(_)) => {
            errors.forbidden(&at, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn addresses(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, old: Option<Ref<'_>>) {
    let known: HashSet<&str> = old
        .into_iter()
        .flat_map(|old| old.list("externalIPs"))
        .filter_map(Ref::as_str)
        .collect();
    for (index, text) in spec.list("externalIPs").filter_map(Ref::as_str).enumerate() {
        let at = path.index(index);
        let fine = known.contains(text) || legacy_ip(errors, &at, text);
        if fine {
            special_address(errors, &at, text);
        }
    }
}

/// Addresses that mean something else than a host elsewhere. An IPv4 address in the form of an IPv6 one is what it maps.
pub fn special_address(errors: &mut Errors, path: &Path<'_>, text: &str) {
    let Some(address) = lenient_ip(text).map(|address| address.to_canonical()) else {
        return errors.invalid(path, text, "must be a valid IP address");
    };
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let unspecified = format!("may not be unspecified ({text})");
    let detail = if address.is_unspecified() {
        &unspecified
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return;
    };
    errors.invalid(path, text, detail);
}

fn node_ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let kind = spec.str("type");
    let mut taken = HashSet::new();
    for (index, port) in spec.list("ports").enumerate() {
        let number = port.get("nodePort").and_then(Ref::as_i64).unwrap_or_default();
        if number == 0 {
            continue;
        }
        let at = path.index(index);
        if kind == "ClusterIP" {
            errors.forbidden(
                &at.child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
        if !taken.insert((port.str("protocol"), number)) {
            errors.duplicate(&at.child("nodePort"), number);
        }
    }
}

fn duplicate_ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut taken = HashSet::new();
    for (index, port) in spec.list("ports").enumerate() {
        let number = port.get("port").and_then(Ref::as_i64).unwrap_or_default();
        let key = (port.str("protocol"), number);
        if !taken.insert(key) {
            // Upstream shows its internal type with only these two members set.
            let shown = format!(
                r#"{{"Name":"","Protocol":"{}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#,
                key.0
            );
            errors.duplicate(&path.index(index), Shown(shown));
        }
    }
}

/// Validates the source ranges of a load balancer, from the field or from the older annotation; upstream writes the
/// path as Go does.
fn source_ranges(errors: &mut Errors, service: Ref<'_>, spec: Ref<'_>, old: Option<Ref<'_>>) {
    let (root, annotations) = (Path::of("spec"), Path::of("metadata.annotations"));
    let annotation = |object: Ref<'_>| {
        object
            .str_at(&["metadata", "annotations", SOURCE_RANGES])
            .to_owned()
    };
    let detail = "may only be used when `type` is 'LoadBalancer'";
    let elsewhere = spec.str("type") != "LoadBalancer";
    let listed = listed_ranges(Some(spec));
    let before = listed_ranges(old.and_then(|old| old.get("spec")));
    let known: HashSet<&str> = before.into_iter().collect();
    if !listed.is_empty() {
        let path = root.child("LoadBalancerSourceRanges");
        if elsewhere {
            errors.forbidden(&path, detail);
        }
        for (index, range) in listed
            .iter()
            .enumerate()
            .filter(|(_, range)| !known.contains(*range))
        {
            legacy_cidr(errors, &path.index(index), range);
        }
    } else if service.at(&["metadata", "annotations", SOURCE_RANGES]).is_some() {
        let (path, text) = (annotations.key(SOURCE_RANGES), annotation(service));
        if elsewhere {
            errors.forbidden(&path, detail);
        }
        let changed = old.is_none_or(|old| annotation(old) != text) && !text.trim().is_empty();
        for range in text.split(',').map(str::trim).filter(|_| changed) {
            legacy_cidr(errors, &path, range);
        }
    }
}

fn listed_ranges(spec: Option<Ref<'_>>) -> Vec<&str> {
    let all = spec
        .into_iter()
        .flat_map(|spec| spec.list("loadBalancerSourceRanges"));
    all.filter_map(Ref::as_str).map(str::trim).collect()
}

fn traffic_policies(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let kind = spec.str("type");
    let policies = ["Cluster", "Local"];
    let external = spec.str("externalTrafficPolicy");
    let outside = kind == "LoadBalancer"
        || kind == "NodePort"
        || (kind == "ClusterIP" && spec.list("externalIPs").len() > 0);
    let at = path.child("externalTrafficPolicy");
    if outside {
        if external.is_empty() {
            errors.required(&at, "");
        } else if !policies.contains(&external) {
            errors.not_supported(&at, external, &policies);
        }
    } else if !external.is_empty() {
        errors.invalid(
            &at,
            external,
            "may only be set for externally-accessible services",
        );
    }
    let check = spec
        .get("healthCheckNodePort")
        .and_then(Ref::as_i64)
        .unwrap_or_default();
    if check != 0 && !(kind == "LoadBalancer" && external == "Local") {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&path.child("healthCheckNodePort"), check, detail);
    }
    one_of(errors, path, spec, "internalTrafficPolicy", &policies, None);
    one_of(errors, path, spec, "trafficDistribution", &DISTRIBUTIONS, None);
}
