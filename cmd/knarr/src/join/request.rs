//! Certificates by requests to the cluster: a new key, a CertificateSigningRequest, and the wait for its certificate.

use anyhow::{Context, bail};
use apiserver_server::pki::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery_client::{ApiResource, Client};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

/// Pauses between looks at a request, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time for the decision and the certificate; then there is another request, as upstream's.
const WITHIN: Duration = Duration::from_secs(15 * 60);
/// A request that waits longer waits for an administrator.
const EXPECTED_WITHIN: Duration = Duration::from_secs(10);

/// A certificate that a node has of the cluster.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    /// The node as a client.
    Client,
    /// The node's port, for its name and its address.
    Serving(IpAddr),
}

impl Wanted {
    fn signer(&self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving(_) => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(&self) -> [&'static str; 2] {
        match self {
            Self::Client => ["digital signature", "client auth"],
            Self::Serving(_) => ["digital signature", "server auth"],
        }
    }

    fn names(&self, node: &str) -> anyhow::Result<Vec<SanType>> {
        match self {
            Self::Client => Ok(Vec::new()),
            Self::Serving(address) => Ok(vec![
                SanType::DnsName(node.try_into().context("the node's name")?),
                SanType::IpAddress(*address),
            ]),
        }
    }
}

/// Requests a certificate for the node, and waits for it.
pub(super) async fn certificate(
    client: &Client,
    node: &str,
    wanted: &Wanted,
    runtime: &Runtime,
) -> anyhow::Result<Identity> {
    let key = KeyPair::generate()?;
    let request = signing_request(node, wanted, &key)?;
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {"request": STANDARD.encode(request), "signerName": wanted.signer(), "usages": wanted.usages()}});
    let made = client
        .create(&requests(), "", &body)
        .await
        .context("requesting a certificate")?;
    let made: Value = serde_json::from_slice(&made)?;
    let name = made["metadata"]["name"]
        .as_str()
        .context("a request without a name")?;
    let waited = runtime
        .timeout(
            WITHIN,
            waited_for(client, name, &approval(name, node, wanted), runtime),
        )
        .await;
    let certificate = waited.with_context(|| format!("no decision on the request {name} in time"))??;
    Identity::from_pem(certificate, key.serialize_pem()).context("the certificate cannot be read")
}

fn requests() -> ApiResource {
    ApiResource {
        group: "certificates.k8s.io".into(),
        version: "v1".into(),
        plural: "certificatesigningrequests".into(),
        kind: "CertificateSigningRequest".into(),
        namespaced: false,
    }
}

fn signing_request(node: &str, wanted: &Wanted, key: &KeyPair) -> anyhow::Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, format!("system:node:{node}"));
    params.subject_alt_names = wanted.names(node)?;
    Ok(params.serialize_request(key)?.pem()?)
}

/// Line of the log for a request that no signer approves by itself. A node's token may request a new name alone, so that a client
/// certificate waits where the name is taken; it cannot read which.
fn approval(name: &str, node: &str, wanted: &Wanted) -> String {
    let command = format!("kubectl certificate approve {name}");
    match wanted {
        Wanted::Client => format!(
            "the request {name} waits for an approval, as where a node {node} is there already: if that is another machine give \
             --hostname-override; if it is this one: {command}"
        ),
        Wanted::Serving(_) => format!("the request {name} waits for an approval: {command}"),
    }
}

async fn waited_for(
    client: &Client,
    name: &str,
    approval: &str,
    runtime: &Runtime,
) -> anyhow::Result<String> {
    let (mut pause, begun) = (PAUSE.0, runtime.monotonic());
    let mut is_said = false;
    loop {
        runtime.sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
        let found = client
            .get_as::<Value>(&requests(), &ObjectKey::cluster(name))
            .await;
        match found {
            Ok(request) => {
                if let Some(certificate) = outcome(name, &request)? {
                    return Ok(certificate);
                }
            }
            Err(error) if error.is_not_found() => bail!("the request {name} is gone"),
            // The server may be away for a moment.
            Err(error) => tracing::debug!(%error, name, "reading a request for a certificate failed"),
        }
        if !is_said && runtime.monotonic().saturating_sub(begun) > EXPECTED_WITHIN {
            is_said = true;
            tracing::warn!("{approval}");
        }
    }
}

/// The certificate, where it is there.
fn outcome(name: &str, request: &Value) -> anyhow::Result<Option<String>> {
    let conditions = request["status"]["conditions"].as_array();
    let refused = |own: &&Value| own["type"] == "Denied" || own["type"] == "Failed";
    if let Some(refused) = conditions.into_iter().flatten().find(refused) {
        let text = |key: &str| refused[key].as_str().unwrap_or_default();
        bail!(
            "the request {name} was refused: {}: {}",
            text("reason"),
            text("message")
        );
    }
    let Some(encoded) = request["status"]["certificate"].as_str() else {
        return Ok(None);
    };
    Ok(Some(String::from_utf8(STANDARD.decode(encoded)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_x509::CertificateRequest;

    #[test]
    fn requests_of_nodes_are_those_that_are_approved() {
        let key = KeyPair::generate().unwrap();
        let read = |wanted: &Wanted| {
            let text = signing_request("worker-1", wanted, &key).unwrap();
            CertificateRequest::from_pem(text.as_bytes()).unwrap()
        };
        let client = read(&Wanted::Client);
        assert_eq!(client.common_name, "system:node:worker-1");
        assert_eq!(client.organizations, ["system:nodes"]);
        assert!(client.dns_names.is_empty() && client.addresses.is_empty());
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let serving = read(&Wanted::Serving(address));
        assert_eq!(serving.dns_names, ["worker-1"]);
        assert_eq!(serving.addresses, [address]);
    }

    #[test]
    fn requests_that_wait_name_their_way_out() {
        let client = approval("csr-1", "vm", &Wanted::Client);
        assert!(client.contains("a node vm is there already"), "{client}");
        assert!(client.contains("--hostname-override"), "{client}");
        let serving = approval("csr-1", "vm", &Wanted::Serving("192.0.2.7".parse().unwrap()));
        assert!(!serving.contains("--hostname-override"), "{serving}");
        for line in [client, serving] {
            assert!(line.ends_with(": kubectl certificate approve csr-1"), "{line}");
        }
    }

    #[test]
    fn requests_end_with_a_certificate_or_a_refusal() {
        let status = |status: Value| outcome("csr-1", &json!({"status": status}));
        assert!(status(json!({})).unwrap().is_none());
        assert!(
            status(json!({"conditions": [{"type": "Approved"}]}))
                .unwrap()
                .is_none()
        );
        let denied =
            status(json!({"conditions": [{"type": "Denied", "reason": "Unknown", "message": "no"}]}));
        assert_eq!(
            denied.unwrap_err().to_string(),
            "the request csr-1 was refused: Unknown: no"
        );
        let issued = status(json!({"certificate": STANDARD.encode("pem")})).unwrap();
        assert_eq!(issued.as_deref(), Some("pem"));
    }
}
