//! A second machine joins the cluster with a token: an agent in a network namespace of its own, behind a link to the first node's.
//! Needs root: `cargo test --test joining -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(dead_code, reason = "the support of other tests is more than this one uses")]

mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use support::cluster::Cluster;
use support::harness::{Pace, Scenario, run};
use support::{Host, Kubectl, text};

const SCENARIOS: &[Scenario] = &[(
    "node_joins_with_a_token_and_runs_pods",
    node_joins_with_a_token_and_runs_pods,
)];

fn main() -> ExitCode {
    run("joining", SCENARIOS, Pace::OneByOne)
}

const KNARR: &str = env!("CARGO_BIN_EXE_knarr");
/// The first node's address, and the second's.
const SERVER: &str = "https://172.31.255.2:6443";
const ADDRESS: &str = "172.31.255.3";

#[track_caller]
fn done(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    text(&output.stdout)
}

fn sh(host: &Host, script: &str) {
    done(host.command("sh").args(["-ec", script]));
}

/// The second machine; gone when dropped.
struct Machine {
    host: Host,
    folder: tempfile::TempDir,
}

impl Machine {
    /// A network namespace beside that of the cluster, on the same link.
    fn beside(cluster: &Cluster) -> Self {
        let first = cluster.host.network_namespace().expect("a network of its own");
        let first_name = first.file_name().expect("a name").to_string_lossy().into_owned();
        let name = format!("{first_name}-2");
        done(Command::new("ip").args(["netns", "add", &name]));
        let machine = Self {
            host: Host::existing(Some(name.clone())),
            folder: tempfile::tempdir().expect("a folder"),
        };
        let pair = [
            "link",
            "add",
            "second0",
            "netns",
            &first_name,
            "type",
            "veth",
            "peer",
        ];
        let peer = ["name", "uplink0", "netns", &name];
        done(Command::new("ip").args(pair).args(peer));
        sh(
            &cluster.host,
            "ip link set second0 master node0 && ip link set second0 up",
        );
        sh(
            &machine.host,
            &format!(
                "ip link set lo up && ip address add {ADDRESS}/24 dev uplink0 && ip link set uplink0 up && \
                 ip route add default via 172.31.255.2"
            ),
        );
        machine
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    fn start_agent(&self, flags: &[&str]) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log());
        let log = log.expect("a log");
        let mut agent = self.host.command(KNARR);
        agent
            .args(["agent", "--hostname-override", "worker-2", "--server", SERVER])
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--cgroup-root", &self.host.cgroup_root()])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        // It ends with the machine.
        drop(agent.spawn().expect("the built binary starts"));
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.log()).unwrap_or_default());
        }
        let removed = self.host.remove_cluster(Path::new(KNARR), &self.data_dir());
        if let Err(error) = removed {
            eprintln!("the second machine was not taken down: {error:#}");
        }
    }
}

fn node_joins_with_a_token_and_runs_pods(cluster: &Cluster) {
    let kubectl = &cluster.kubectl;
    let machine = Machine::beside(cluster);
    let mut create = cluster.host.command(KNARR);
    create
        .args(["token", "create", "--data-dir"])
        .arg(cluster.data_dir());
    let token = machine.folder.path().join("token");
    std::fs::write(&token, done(&mut create)).expect("written");
    machine.start_agent(&[
        "--token-file",
        &token.display().to_string(),
        "--node-labels",
        "tier=second",
        "--register-with-taints",
        "example.com/second=yes:NoSchedule",
    ]);
    kubectl.until("the second node", || {
        kubectl.try_kubectl(&["get", "node", "worker-2"]).status.success()
    });
    kubectl.wait("node/worker-2", "condition=Ready");
    let node = |path: &str| kubectl.field("node/worker-2", path);
    assert_eq!(
        node("{.status.addresses[?(@.type=='InternalIP')].address}"),
        ADDRESS
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
        .args(["route", "show", "via", ADDRESS])
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
