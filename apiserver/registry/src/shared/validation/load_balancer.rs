//! Validation of a load balancer's addresses in the status of Services and Ingresses.

use super::{Errors, Path, dns_subdomain, legacy_ip};
use machinery_schema::Ref;
use std::collections::HashSet;
use std::net::IpAddr;

const MODES: [&str; 2] = ["Proxy", "VIP"];

/// `status.loadBalancer.ingress`; addresses that were there may be as they were.
pub fn load_balancer(errors: &mut Errors, object: Ref<'_>, old: Ref<'_>, with_mode: bool) {
    let path = Path::of("status.loadBalancer.ingress");
    let ingress = |object| Ref::at(object, &["status", "loadBalancer"]);
    let listed = |object| ingress(object).into_iter().flat_map(|own| own.list("ingress"));
    let before: HashSet<&str> = listed(old).map(|point| point.str("ip")).collect();
    for (index, point) in listed(object).enumerate() {
        let at = path.index(index);
        let ip = point.str("ip");
        if !ip.is_empty() && !before.contains(ip) {
            legacy_ip(errors, &at.child("ip"), ip);
        }
        if with_mode {
            mode(
                errors,
                &at.child("ipMode"),
                ip,
                point.get("ipMode").and_then(Ref::as_str),
            );
        }
        let hostname = point.str("hostname");
        if !hostname.is_empty() {
            dns_subdomain(errors, &at.child("hostname"), hostname);
            if hostname.parse::<IpAddr>().is_ok() {
                let detail = "must be a DNS name, not an IP address";
                errors.invalid(&at.child("hostname"), hostname, detail);
            }
        }
    }
}

fn mode(errors: &mut Errors, path: &Path<'_>, ip: &str, mode: Option<&str>) {
    match mode {
        None if ip.is_empty() => {}
        None => errors.required(path, "must be specified when `ip` is set"),
        Some(_) if ip.is_empty() => errors.forbidden(path, "may not be specified when `ip` is not set"),
        Some(mode) if !MODES.contains(&mode) => errors.not_supported(path, mode, &MODES),
        Some(_) => {}
    }
}
