//! A second machine joins the cluster with a token: an agent in a network namespace of its own, behind a link to the first node's.
//! Needs root: `cargo test --test joining -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(dead_code, reason = "the support of other tests is more than this one uses")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use support::cluster::Cluster;
use support::harness::{Pace, Scenario, run};
use support::{Kubectl, text};
use xtask::host::Host;
use xtask::nodes::{FurtherNode, write_token};

const SCENARIOS: &[Scenario] = &[(
    "node_joins_with_a_token_and_runs_pods",
    node_joins_with_a_token_and_runs_pods,
)];

fn main() -> ExitCode {
    run("joining", SCENARIOS, Pace::OneByOne)
}

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");
const SECURE_PORT: u16 = 6443;

/// The second machine; gone when dropped.
struct Machine {
    node: FurtherNode,
    folder: tempfile::TempDir,
}

impl Machine {
    /// A network namespace beside that of the cluster, on the same link.
    fn beside(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = folder.path().join("agent");
        let node = FurtherNode::beside(&cluster.host, 2, "worker-2", &data_dir, SECURE_PORT);
        Self {
            node: node.expect("a place beside the first"),
            folder,
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.node.data_dir.join("agent.log");
            eprintln!("{}", std::fs::read_to_string(log).unwrap_or_default());
        }
        if let Err(error) = self.node.remove(Path::new(KNARR)) {
            eprintln!("the second machine was not taken down: {error:#}");
        }
    }
}

fn node_joins_with_a_token_and_runs_pods(cluster: &Cluster) {
    let kubectl = &cluster.kubectl;
    let machine = Machine::beside(cluster);
    let (knarr, token) = (Path::new(KNARR), machine.folder.path().join("token"));
    write_token(&cluster.host, knarr, &cluster.data_dir(), &token).expect("a token");
    let flags = [
        "--node-labels",
        "tier=second",
        "--register-with-taints",
        "example.com/second=yes:NoSchedule",
    ];
    // It ends with the machine.
    drop(
        machine
            .node
            .start(knarr, &token, &flags)
            .expect("the built binary starts"),
    );
    kubectl.until("the second node", || {
        kubectl.try_kubectl(&["get", "node", "worker-2"]).status.success()
    });
    kubectl.wait("node/worker-2", "condition=Ready");
    let node = |path: &str| kubectl.field("node/worker-2", path);
    let address = Host::address(2).to_string();
    assert_eq!(
        node("{.status.addresses[?(@.type=='InternalIP')].address}"),
        address
    );
    assert_eq!(node("{.metadata.labels.tier}"), "second");
    assert_eq!(
        node("{.spec.taints[?(@.key=='example.com/second')].effect}"),
        "NoSchedule"
    );

    // Both certificates were approved and signed, and the agent serves with its own.
    let path = "{range .items[*]}{.spec.signerName} {.status.conditions[*].type};{end}";
    let issued = || kubectl.field("csr", path);
    for signer in ["kube-apiserver-client-kubelet", "kubelet-serving"] {
        let approved = format!("kubernetes.io/{signer} Approved;");
        kubectl.until(&approved, || issued().contains(&approved));
    }
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": {"nodeName": "worker-2",
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "hello", "image": "knarr.local/hello:1", "imagePullPolicy": "Never"}]}}"#;
    kubectl.feed(&["create"], pod);
    kubectl.wait("pod/second", "condition=Ready");
    // The server verifies the certificate of port 10250 by the authority and the address.
    kubectl.until("the pod's log", || {
        kubectl.try_kubectl(&["logs", "second"]).status.success()
    });
    let routed = cluster
        .host
        .command("ip")
        .args(["route", "show", "via", &address])
        .output();
    let routed = text(&routed.expect("ip starts").stdout);
    assert!(routed.contains(&node("{.spec.podCIDR}")), "{routed}");
    bearer_of_a_token_gets_no_identity_that_is_taken(kubectl);
    kubectl.kubectl(&["delete", "pod", "second", "--grace-period=0", "--force"]);
    kubectl.kubectl(&["delete", "node", "worker-2"]);
}

/// A request for the identity of a node that is there waits for an administrator; a new node's does not.
fn bearer_of_a_token_gets_no_identity_that_is_taken(kubectl: &Kubectl) {
    let bearer = [
        "--as",
        "system:bootstrap:abcdef",
        "--as-group",
        "system:bootstrappers:kubeadm:default-node-token",
    ];
    for node in ["worker-2", "worker-3"] {
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("of-{node}")},
            "spec": {"request": STANDARD.encode(signing_request(node)), "usages": ["digital signature", "client auth"],
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet"}});
        kubectl.feed(&[&["create"], bearer.as_slice()].concat(), &request.to_string());
    }
    kubectl.wait("csr/of-worker-3", "condition=Approved");
    assert_eq!(
        kubectl.field("csr/of-worker-2", "{.status.conditions[*].type}"),
        ""
    );
    kubectl.kubectl(&["delete", "csr", "of-worker-2", "of-worker-3"]);
}

fn signing_request(node: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let mut push = |kind, text: String| params.distinguished_name.push(kind, text);
    push(DnType::OrganizationName, "system:nodes".to_owned());
    push(DnType::CommonName, format!("system:node:{node}"));
    let request = params.serialize_request(&KeyPair::generate().expect("a key"));
    request.expect("a request").pem().expect("its text")
}
