//! Answers of the plugin: the specification's results and errors as JSON. Pure.

use super::call::{Attachment, CniError, VERSIONS};
use super::leases::gateway;
use super::links::Ends;
use ipnet::Ipv4Net;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// An answer: the program's exit code, and the text that it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn of(result: Result<Option<Value>, CniError>, version: &str) -> Self {
        match result {
            Ok(None) => Self {
                code: 0,
                text: String::new(),
            },
            Ok(Some(result)) => Self {
                code: 0,
                text: result.to_string(),
            },
            Err(error) => Self {
                code: 1,
                text: json!({
                    "cniVersion": version, "code": error.code, "msg": error.message, "details": error.details
                })
                .to_string(),
            },
        }
    }
}

/// Result of a pod's link.
pub(crate) fn link(
    version: &str,
    attachment: &Attachment,
    near: &str,
    ends: &Ends,
    (address, range): (Ipv4Addr, Ipv4Net),
) -> Value {
    let [near_hardware, far_hardware] = ends.each_ref().map(hardware);
    let mut ip = json!({
        "interface": 1,
        "address": format!("{address}/{}", range.prefix_len()),
        "gateway": gateway(range)
    });
    with_family(version, &mut ip, address.into());
    json!({
        "cniVersion": version,
        "interfaces": [
            {"name": near, "mac": near_hardware},
            {"name": attachment.owner.interface, "mac": far_hardware, "sandbox": attachment.namespace}
        ],
        "ips": [ip],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dns": {}
    })
}

/// Result of a loopback link: the first address of each family.
pub(crate) fn loopback(version: &str, attachment: &Attachment, addresses: &[(IpAddr, u8)]) -> Value {
    let first =
        |is_wanted: fn(&IpAddr) -> bool| addresses.iter().find(move |(address, _)| is_wanted(address));
    let ips = [first(IpAddr::is_ipv4), first(IpAddr::is_ipv6)];
    let ips = ips.into_iter().flatten().map(|(address, length)| {
        let mut ip = json!({"interface": 0, "address": format!("{address}/{length}")});
        with_family(version, &mut ip, *address);
        ip
    });
    json!({
        "cniVersion": version,
        // Upstream's loopback plugin reports this address, and the kernel has no other for `lo`.
        "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": attachment.namespace}],
        "ips": ips.collect::<Vec<_>>(),
        "dns": {}
    })
}

/// Result of VERSION.
pub(crate) fn versions(version: &str) -> Value {
    json!({"cniVersion": version, "supportedVersions": VERSIONS})
}

/// Adds the family (`"version"`) to an address; the specification dropped the field in 1.0.0.
fn with_family(version: &str, ip: &mut Value, address: IpAddr) {
    if version.starts_with("0.") {
        ip["version"] = (if address.is_ipv4() { "4" } else { "6" }).into();
    }
}

fn hardware(bytes: &[u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
