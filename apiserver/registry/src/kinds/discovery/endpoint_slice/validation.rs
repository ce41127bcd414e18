//! Validation of EndpointSlices (upstream's `pkg/apis/discovery/validation`).

use crate::kinds::core::pod::validation::ports::PROTOCOLS;
use crate::kinds::core::service::validation::special_address;
use crate::shared::validation::{Errors, Path, dns_label, dns_subdomain, ip_problems, legacy_ip, present};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;
use std::collections::BTreeSet;
use std::net::IpAddr;

const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MAX_ADDRESSES: usize = 100;
const MAX_ENDPOINTS: usize = 1000;
const MAX_PORTS: usize = 20_000;
const MAX_HINTS: usize = 8;

/// Every problem of an EndpointSlice.
pub fn validate(slice: Ref<'_>) -> Vec<FieldError> {
    validate_all(slice, None)
}

/// Endpoints that are as they were are not looked at again.
fn validate_all(slice: Ref<'_>, old: Option<Ref<'_>>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    // What upstream checks by declaration comes after what it checks by hand.
    let mut declared = Errors::new();
    let kind = slice.str("addressType");
    if kind.is_empty() {
        declared.required(&Path::of("addressType"), "");
    }
    ports(&mut errors, &Path::of("ports"), slice);
    let mut of_endpoints = Errors::new();
    endpoints(
        &mut of_endpoints,
        &mut declared,
        &Path::of("endpoints"),
        slice,
        kind,
    );
    if old.is_none_or(|old| old.get("endpoints") != slice.get("endpoints")) {
        errors.extend(of_endpoints);
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.not_supported(&Path::of("addressType"), kind, &TYPES);
    }
    let mut all = errors.into_list();
    all.extend(declared.into_list());
    all
}

/// Every problem of a changed EndpointSlice; its address type stays.
pub fn validate_update(slice: Ref<'_>, old: Ref<'_>) -> Vec<FieldError> {
    let mut errors = validate_all(slice, Some(old));
    let mut fixed = Errors::new();
    if slice.str("addressType") != old.str("addressType") {
        let shown = Shown("null".into());
        fixed.invalid(&Path::of("addressType"), shown, "field is immutable");
    }
    errors.extend(fixed.into_list());
    errors
}

fn ports(errors: &mut Errors, path: &Path<'_>, slice: Ref<'_>) {
    let list = slice.list("ports");
    if list.len() > MAX_PORTS {
        errors.too_many(path, list.len(), MAX_PORTS);
        return;
    }
    let mut names = BTreeSet::new();
    for (index, port) in list.enumerate() {
        let at = path.index(index);
        let name = port.str("name");
        if !name.is_empty() {
            dns_label(errors, &at.child("name"), name);
        }
        if !names.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
        let protocol = port.str("protocol");
        if port.get("protocol").is_none() {
            errors.required(&at.child("protocol"), "");
        } else if !PROTOCOLS.contains(&protocol) {
            errors.not_supported(&at.child("protocol"), protocol, &PROTOCOLS);
        }
        if let Some(application) = present(port, "appProtocol").and_then(Ref::as_str) {
            errors.all_invalid(
                &at.child("appProtocol"),
                application,
                syntax::qualified_name(application),
            );
        }
    }
}

fn endpoints(errors: &mut Errors, declared: &mut Errors, path: &Path<'_>, slice: Ref<'_>, kind: &str) {
    let list = slice.list("endpoints");
    if list.len() > MAX_ENDPOINTS {
        errors.too_many(path, list.len(), MAX_ENDPOINTS);
        return;
    }
    for (index, endpoint) in list.enumerate() {
        let at = path.index(index);
        let addresses = at.child("addresses");
        match endpoint.list("addresses").len() {
            0 => declared.required(&addresses, ""),
            count if count > MAX_ADDRESSES => declared.too_many(&addresses, count, MAX_ADDRESSES),
            _ => {}
        }
        for (index, address) in endpoint.list("addresses").enumerate() {
            let text = address.as_str().unwrap_or_default();
            validate_address(errors, &addresses, index, text, kind);
        }
        if let Some(name) = present(endpoint, "nodeName").and_then(Ref::as_str) {
            dns_subdomain(errors, &at.child("nodeName"), name);
        }
        if endpoint.get("hostname").is_some() {
            dns_label(errors, &at.child("hostname"), endpoint.str("hostname"));
        }
        if let Some(own) = endpoint.get("hints") {
            hints(errors, &at.child("hints"), own);
        }
    }
}

/// Validates one address; an address of another family is an error of the list.
fn validate_address(errors: &mut Errors, path: &Path<'_>, index: usize, text: &str, kind: &str) {
    let at = path.index(index);
    if kind == "FQDN" {
        return qualified_domain(errors, &at, text);
    }
    let is_fine = match kind {
        "IPv4" => legacy_ip(errors, &at, text),
        "IPv6" => {
            let problems = ip_problems(text);
            let is_fine = problems.is_empty();
            errors.all_invalid(&at, text, problems);
            is_fine
        }
        _ => false,
    };
    if !is_fine {
        return;
    }
    let Ok(address) = text.parse::<IpAddr>() else {
        return;
    };
    if address.is_ipv4() != (kind == "IPv4") {
        errors.invalid(path, text, format!("must be an {kind} address"));
    }
    special_address(errors, &at, text);
}

/// A name that is looked up as it stands.
fn qualified_domain(errors: &mut Errors, path: &Path<'_>, text: &str) {
    let before = errors.len();
    dns_subdomain(errors, path, text);
    if errors.len() == before && !text.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, text, detail);
    }
}

/// Lists the problems of a name.
type Rule = fn(&str) -> Vec<String>;

/// Validates the zones and nodes from which an endpoint should be used.
fn hints(errors: &mut Errors, path: &Path<'_>, hints: Ref<'_>) {
    let zone: Rule = syntax::label_value;
    for (list, rule) in [("forZones", zone), ("forNodes", syntax::dns1123_subdomain)] {
        let at = path.child(list);
        let count = hints.list(list).len();
        if count > MAX_HINTS {
            return errors.too_many(&at, count, MAX_HINTS);
        }
        let mut seen = BTreeSet::new();
        for (index, name) in hints.list(list).map(|own| own.str("name")).enumerate() {
            let at = at.index(index);
            if seen.contains(&name) {
                errors.duplicate(&at.child("name"), name);
            } else {
                errors.all_invalid(&at.child("name"), name, rule(name));
                seen.insert(name);
            }
        }
    }
}
