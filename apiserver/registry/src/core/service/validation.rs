//! What makes a Service acceptable (upstream's `ValidateService`).

use crate::core::pod::validation::containers::{PROTOCOLS, port_number, port_or_name};
use crate::validation::{
    Errors, Path, dns_label, dns_subdomain, labels, legacy_cidr, legacy_ip, load_balancer, one_of,
};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::net::IpAddr;

const BAD_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// A day, the longest a client may stick to an endpoint.
const MAX_AFFINITY_SECONDS: i64 = 86_400;

/// Every problem of a Service.
pub fn validate(service: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let Some(spec) = service.get("spec") else {
        return Vec::new();
    };
    let path = Path::of("spec");
    let headless = spec.str("clusterIP") == "None";
    by_type(&mut errors, &path, spec, headless);
    ports(&mut errors, &path.child("ports"), spec, headless);
    labels(&mut errors, &path.child("selector"), spec.get("selector"));
    affinity(&mut errors, &path, spec);
    addresses(&mut errors, &path.child("externalIPs"), spec);
    one_of(&mut errors, &path, spec, "type", &TYPES, Some(""));
    node_ports(&mut errors, &path.child("ports"), spec);
    duplicate_ports(&mut errors, &path.child("ports"), spec);
    source_ranges(&mut errors, &path.child("loadBalancerSourceRanges"), spec);
    traffic_policies(&mut errors, &path, spec);
    families(&mut errors, &path, spec);
    errors.into_list()
}

/// Every problem of a changed Service.
pub fn validate_update(service: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut problems = Errors::new();
    let path = Path::of("spec");
    let address = |object: Ref<'_>| object.str_at(&["spec", "clusterIP"]).to_owned();
    let stays = |object: Ref<'_>| object.str_at(&["spec", "type"]) != "ExternalName";
    if stays(service) && stays(old) && !address(old).is_empty() && address(service) != address(old) {
        let at = path.child("clusterIPs");
        let shown = service
            .at(&["spec", "clusterIPs"])
            .map_or_else(|| "null".into(), Ref::to_json);
        problems.invalid(&at.index(0), Shown(shown), "may not change once set");
    }
    let mut errors = problems.into_list();
    errors.extend(validate(service));
    errors
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
            if !spec.str("clusterIP").is_empty() {
                let shown = spec.get("clusterIPs").map_or_else(|| "[]".into(), Ref::to_json);
                let detail = "may not be set for ExternalName services";
                errors.invalid(&path.child("clusterIPs"), Shown(shown), detail);
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

fn ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>, headless: bool) {
    let list = spec.list("ports");
    let needed = !headless && spec.str("type") != "ExternalName";
    if list.len() == 0 && needed {
        errors.required(path, "");
    }
    let must_be_named = list.len() > 1;
    let mut names = Vec::new();
    for (index, port) in list.enumerate() {
        let at = path.index(index);
        let name = port.str("name");
        if name.is_empty() {
            if must_be_named {
                errors.required(&at.child("name"), "");
            }
        } else {
            dns_label(errors, &at.child("name"), name);
            if names.contains(&name) {
                errors.duplicate(&at.child("name"), name);
            }
            names.push(name);
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

fn addresses(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    for (index, address) in spec.list("externalIPs").enumerate() {
        let text = address.as_str().unwrap_or_default();
        let (at, before) = (path.index(index), errors.len());
        legacy_ip(errors, &at, text);
        if let Some(address) = text.parse::<IpAddr>().ok().filter(|_| errors.len() == before) {
            special_address(errors, &at, address);
        }
    }
}

/// Addresses that mean something else than a host elsewhere.
pub fn special_address(errors: &mut Errors, path: &Path<'_>, address: IpAddr) {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let detail = if address.is_unspecified() {
        "may not be unspecified (0.0.0.0 or ::)"
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return;
    };
    errors.invalid(path, address.to_string(), detail);
}

fn node_ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let kind = spec.str("type");
    let mut taken = Vec::new();
    for (index, port) in spec.list("ports").enumerate() {
        let number = port.get("nodePort").and_then(Ref::as_i64).unwrap_or_default();
        if number == 0 {
            continue;
        }
        let at = path.index(index);
        if kind == "ClusterIP" || kind == "ExternalName" {
            let detail = format!("may not be used when `type` is '{kind}'");
            errors.forbidden(&at.child("nodePort"), &detail);
        }
        if taken.contains(&(port.str("protocol"), number)) {
            errors.duplicate(&at.child("nodePort"), number);
        }
        taken.push((port.str("protocol"), number));
    }
}

fn duplicate_ports(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    let mut taken = Vec::new();
    for (index, port) in spec.list("ports").enumerate() {
        let number = port.get("port").and_then(Ref::as_i64).unwrap_or_default();
        let key = (port.str("protocol"), number);
        if taken.contains(&key) {
            // Upstream shows its internal type with only these two members set.
            let shown = format!(
                r#"{{"Name":"","Protocol":"{}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#,
                key.0
            );
            errors.duplicate(&path.index(index), Shown(shown));
        }
        taken.push(key);
    }
}

fn source_ranges(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.list("loadBalancerSourceRanges").len() == 0 {
        return;
    }
    if spec.str("type") != "LoadBalancer" {
        errors.forbidden(path, "may only be used when `type` is 'LoadBalancer'");
    }
    for (index, range) in spec.list("loadBalancerSourceRanges").enumerate() {
        let text = range.as_str().unwrap_or_default().trim();
        legacy_cidr(errors, &path.index(index), text);
    }
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
    if kind != "ExternalName" {
        one_of(errors, path, spec, "internalTrafficPolicy", &policies, None);
    }
}

fn families(errors: &mut Errors, path: &Path<'_>, spec: Ref<'_>) {
    if spec.str("type") == "ExternalName" {
        return;
    }
    let at = path.child("ipFamilies");
    let mut seen = Vec::new();
    for (index, family) in spec.list("ipFamilies").enumerate() {
        let family = family.as_str().unwrap_or_default();
        if !["IPv4", "IPv6"].contains(&family) {
            errors.not_supported(&at.index(index), family, &["IPv4", "IPv6"]);
        }
        if seen.contains(&family) {
            errors.duplicate(&at.index(index), family);
        }
        seen.push(family);
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    one_of(errors, path, spec, "ipFamilyPolicy", &policies, None);
    let ips = path.child("clusterIPs");
    for (index, address) in spec.list("clusterIPs").enumerate() {
        let text = address.as_str().unwrap_or_default();
        if !text.is_empty() && text != "None" && text.parse::<IpAddr>().is_err() {
            errors.invalid(&ips.index(index), text, BAD_ADDRESS);
        }
    }
}
