//! Forms of requests that upstream's signers take (its `pkg/apis/certificates/helpers.go` and `signer.go`), in its words.

use super::{API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING};
use machinery_meta::syntax::dns1123_subdomain;
use machinery_x509::CertificateRequest;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) const NODE_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";

/// The problem for which a signer does not sign a request, if there is one; `Err` where there is no such signer.
pub(super) fn problem(
    signer: &str,
    request: &CertificateRequest,
    usages: &[String],
) -> Result<Option<String>, ()> {
    match signer {
        API_CLIENT => Ok(api_client_problem(usages)),
        KUBELET_CLIENT => Ok(kubelet_client_problem(request, usages).map(str::to_owned)),
        KUBELET_SERVING => Ok(kubelet_serving_problem(request, usages).map(str::to_owned)),
        _ => Err(()),
    }
}

pub(super) fn kubelet_client_problem(
    request: &CertificateRequest,
    usages: &[String],
) -> Option<&'static str> {
    let CertificateRequest {
        dns_names,
        addresses,
        emails,
        uris,
        ..
    } = request;
    if request.organizations != [NODES] {
        return Some("subject organization is not system:nodes");
    }
    if !dns_names.is_empty() {
        return Some("DNS subjectAltNames are not allowed");
    }
    if !emails.is_empty() {
        return Some("Email subjectAltNames are not allowed");
    }
    if !addresses.is_empty() {
        return Some("IP subjectAltNames are not allowed");
    }
    if !uris.is_empty() {
        return Some("URI subjectAltNames are not allowed");
    }
    if !request.common_name.starts_with(NODE_PREFIX) {
        return Some("subject common name does not begin with system:node:");
    }
    let is_right = are(usages, &["client auth", "digital signature"]);
    (!is_right).then_some("usages did not match [client auth digital signature key encipherment]")
}

pub(super) fn kubelet_serving_problem(
    request: &CertificateRequest,
    usages: &[String],
) -> Option<&'static str> {
    if request.organizations != [NODES] {
        return Some("subject organization is not system:nodes");
    }
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Some("DNS or IP subjectAltName is required");
    }
    if !request.emails.is_empty() {
        return Some("Email subjectAltNames are not allowed");
    }
    if !request.uris.is_empty() {
        return Some("URI subjectAltNames are not allowed");
    }
    if !are(usages, &["digital signature", "server auth"]) {
        return Some("usages did not match [digital signature key encipherment server auth]");
    }
    let is_node = request.common_name.starts_with(NODE_PREFIX);
    (!is_node).then_some("subject common name does not begin with system:node:")
}

fn api_client_problem(usages: &[String]) -> Option<String> {
    const OPTIONAL: [&str; 2] = ["digital signature", "key encipherment"];
    let wrong = usages
        .iter()
        .find(|own| **own != "client auth" && !OPTIONAL.contains(&own.as_str()));
    if let Some(wrong) = wrong {
        return Some(format!("invalid usage for client certificate: {wrong}"));
    }
    let is_client = usages.iter().any(|own| own == "client auth");
    (!is_client).then(|| "missing required usage for client certificate: client auth".to_owned())
}

/// Exactly these, with or without the encipherment of keys, for which only RSA keys are used.
fn are(usages: &[String], required: &[&str]) -> bool {
    let usages: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let mut others: BTreeSet<&str> = usages.clone();
    others.remove("key encipherment");
    others == required.iter().copied().collect()
}

/// Reports whether a serving certificate names the node alone, and addresses that the API server itself saw the node at. A node
/// chooses its name: one that is a wildcard, say, is no name of a node, nor is the name of a Service or of a pod, for which
/// clients that trust the authority would take it.
pub(super) fn names_only(request: &CertificateRequest, node: &str, seen: Option<IpAddr>) -> bool {
    let is_seen = |address: &IpAddr| Some(address.to_canonical()) == seen;
    let is_of_cluster = || node.split('.').any(|label| ["svc", "pod"].contains(&label));
    dns1123_subdomain(node).is_empty()
        && node != "localhost"
        && !is_of_cluster()
        && request.dns_names.iter().all(|name| name == node)
        && request.addresses.iter().all(is_seen)
}

/// Reports whether a certificate is requested for a name or an address of the API server: pods trust the authority, and would
/// take the kubelet for the server.
pub(super) fn is_of_api_server(request: &CertificateRequest, own: &BTreeSet<String>) -> bool {
    let is_own = |name: String| own.iter().any(|own| own.eq_ignore_ascii_case(&name));
    let addresses = request.addresses.iter();
    let addresses = addresses.map(|address| address.to_canonical().to_string());
    let names = request.dns_names.iter().cloned();
    names.chain(addresses).any(is_own)
}
