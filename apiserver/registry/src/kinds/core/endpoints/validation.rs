//! Validation of Endpoints (upstream's `ValidateEndpointsCreate`).

use crate::kinds::core::pod::validation::ports::{PROTOCOLS, port_number};
use crate::kinds::core::service::validation::special_address;
use crate::shared::validation::{Errors, Path, dns_label, dns_subdomain, legacy_ip, one_of, present};
use machinery_meta::{FieldError, syntax};
use machinery_schema::Ref;

/// Every problem of an Endpoints object.
pub fn validate(endpoints: Ref<'_>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = Path::of("subsets");
    for (index, subset) in endpoints.list("subsets").enumerate() {
        let at = path.index(index);
        if subset.list("addresses").len() == 0 && subset.list("notReadyAddresses").len() == 0 {
            errors.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for name in ["addresses", "notReadyAddresses"] {
            let list = at.child(name);
            for (index, address) in subset.list(name).enumerate() {
                validate_address(&mut errors, &list.index(index), address);
            }
        }
        ports(&mut errors, &at.child("ports"), subset);
    }
    errors.into_list()
}

fn validate_address(errors: &mut Errors, path: &Path<'_>, address: Ref<'_>) {
    let text = address.str("ip");
    let at = path.child("ip");
    legacy_ip(errors, &at, text);
    if !address.str("hostname").is_empty() {
        dns_label(errors, &path.child("hostname"), address.str("hostname"));
    }
    // A pointer in Go: an empty name is a malformed one.
    if let Some(name) = address.get("nodeName").and_then(Ref::as_str) {
        dns_subdomain(errors, &path.child("nodeName"), name);
    }
    special_address(errors, &at, text);
}

fn ports(errors: &mut Errors, path: &Path<'_>, subset: Ref<'_>) {
    let must_be_named = subset.list("ports").len() > 1;
    for (index, port) in subset.list("ports").enumerate() {
        let at = path.index(index);
        let name = port.str("name");
        if must_be_named && name.is_empty() {
            errors.required(&at.child("name"), "");
        } else if !name.is_empty() {
            dns_label(errors, &at.child("name"), name);
        }
        port_number(
            errors,
            &at.child("port"),
            port.get("port").and_then(Ref::as_i64).unwrap_or_default(),
        );
        one_of(errors, &at, port, "protocol", &PROTOCOLS, Some(""));
        if let Some(protocol) = present(port, "appProtocol").and_then(Ref::as_str) {
            errors.all_invalid(
                &at.child("appProtocol"),
                protocol,
                syntax::qualified_name(protocol),
            );
        }
    }
}
